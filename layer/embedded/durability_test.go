package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
)

func setKey(ctx context.Context, db kv.Database, key, value string) (kv.Commit, error) {
	return db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set([]byte(key), []byte(value))
		return nil
	})
}

func getKey(t testing.TB, db kv.Database, key string) (value []byte) {
	t.Helper()
	require.NoError(t, db.ReadTransact(context.Background(), func(tx kv.ReadTransaction) (err error) {
		value, err = tx.Get([]byte(key)).Get()
		return err
	}))
	return value
}

func TestVersionsGoOnAfterRestart(t *testing.T) {
	dir := t.TempDir()
	var last kv.Commit
	for i := range 5 {
		db := openTest(t, dir, Options{})
		require.NoError(t, db.ReadTransact(t.Context(), func(tx kv.ReadTransaction) error {
			version, err := tx.ReadVersion()
			require.NoError(t, err)
			require.GreaterOrEqual(t, version, last.Version)
			return nil
		}))
		for j := range 3 {
			commit, err := setKey(t.Context(), db, fmt.Sprint(i, j), "x")
			require.NoError(t, err)
			require.Greater(t, commit.Version, last.Version)
			last = commit
		}
		require.NoError(t, db.Close())
	}
}

// countingFS counts syncs of the write-ahead log, and can make them slow or fail.
type countingFS struct {
	syncs atomic.Int64
	fail  atomic.Bool
	slow  atomic.Int64 // nanoseconds
	stuck sync.RWMutex // while it is locked, syncs wait
}

func (c *countingFS) wrap(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.HasSuffix(op.Path, ".log") {
			return nil
		}
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			c.syncs.Add(1)
			time.Sleep(time.Duration(c.slow.Load()))
			c.stuck.RLock()
			defer c.stuck.RUnlock()
			if c.fail.Load() {
				return errors.New("the disk is broken")
			}
		}
		return nil
	}))
}

func TestCommitsShareSyncs(t *testing.T) {
	disk := &countingFS{}
	db := openTest(t, "db", Options{FS: disk.wrap(vfs.NewMem())})
	disk.slow.Store(int64(2 * time.Millisecond))
	before := disk.syncs.Load()
	const clients, rounds = 64, 10
	var group errgroup.Group
	for client := range clients {
		group.Go(func() error {
			for round := range rounds {
				if _, err := setKey(t.Context(), db, fmt.Sprint(client, "-", round), "x"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	syncs := disk.syncs.Load() - before
	t.Logf("%d commits with %d syncs", clients*rounds, syncs)
	require.Less(t, syncs, int64(clients*rounds/8))
	require.GreaterOrEqual(t, syncs, int64(rounds))
}

func TestReadOnlyTransactionsSyncNothing(t *testing.T) {
	disk := &countingFS{}
	db := openTest(t, "db", Options{FS: disk.wrap(vfs.NewMem())})
	_, err := setKey(t.Context(), db, "a", "1")
	require.NoError(t, err)
	before := disk.syncs.Load()
	for range 100 {
		commit, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
			_, err := tx.Get([]byte("a")).Get()
			return err
		})
		require.NoError(t, err)
		require.Zero(t, commit)
	}
	require.Equal(t, before, disk.syncs.Load())
}

// After a failed sync nobody knows what is on the disk, so nothing is answered any more as if it were.
func TestFailedSyncIsNeverAnswered(t *testing.T) {
	disk := &countingFS{}
	memory := vfs.NewMem()
	db, err := Open("db", Options{FS: disk.wrap(memory)})
	require.NoError(t, err)
	_, err = setKey(t.Context(), db, "a", "1")
	require.NoError(t, err)
	disk.fail.Store(true)
	_, err = setKey(t.Context(), db, "a", "2")
	require.ErrorIs(t, err, kv.ErrCommitUnknown)
	require.ErrorContains(t, err, "the disk is broken")
	require.Equal(t, "1", string(getKey(t, db, "a")), "readers do not see what may be lost")
	disk.fail.Store(false)
	_, err = setKey(t.Context(), db, "b", "1")
	require.ErrorIs(t, err, kv.ErrClosed)
	require.NotErrorIs(t, err, kv.ErrCommitUnknown)
	require.Nil(t, getKey(t, db, "b"))
	<-db.Failed()
	require.ErrorContains(t, db.Err(), "the disk is broken")
	require.ErrorContains(t, db.Close(), "the disk is broken")
	again := openTest(t, "db", Options{FS: memory})
	require.Contains(t, []string{"1", "2"}, string(getKey(t, again, "a")))
	_, err = setKey(t.Context(), again, "b", "1")
	require.NoError(t, err)
}

// TestCrashLosesNothingThatWasAnsweredOrRead takes images of the file system as a crash could leave it, under load: each must have every commit that was
// answered, and every row that a reader had seen, before the image was taken.
func TestCrashLosesNothingThatWasAnsweredOrRead(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	disk := vfs.NewCrashableMem()
	db := openTest(t, "db", Options{FS: disk, MemTableSize: 64 << 10}) // small, so that flushes happen
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	known := map[string]int64{} // per client, the newest value that was answered or read
	note := func(key string, value int64) {
		mu.Lock()
		defer mu.Unlock()
		known[key] = max(known[key], value)
	}
	var group errgroup.Group
	for client := range 8 {
		key := fmt.Sprint("client", client)
		group.Go(func() error {
			for n := int64(1); ctx.Err() == nil; n++ {
				_, err := db.Transact(ctx, func(tx kv.Transaction) error {
					tx.Set([]byte(key), binary.BigEndian.AppendUint64(nil, uint64(n)))
					tx.Set(fmt.Append(nil, "filler", rand.IntN(1000)), make([]byte, 500))
					return nil
				})
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				note(key, n)
			}
			return nil
		})
		group.Go(func() error {
			for ctx.Err() == nil {
				value := getKey(t, db, key)
				if value != nil {
					note(key, int64(binary.BigEndian.Uint64(value)))
				}
			}
			return nil
		})
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for range 8 {
		time.Sleep(20 * time.Millisecond) // some load between the images; no condition depends on it
		mu.Lock()
		before := map[string]int64{}
		for key, value := range known {
			before[key] = value
		}
		mu.Unlock()
		image := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
		crashed, err := Open("db", Options{FS: image})
		require.NoError(t, err)
		for key, value := range before {
			stored := getKey(t, crashed, key)
			require.NotNil(t, stored, key)
			require.GreaterOrEqual(t, int64(binary.BigEndian.Uint64(stored)), value, key)
		}
		require.NoError(t, crashed.Close())
	}
	cancel()
	require.NoError(t, group.Wait())
}

// Environment of the subprocess of TestKill.
const killDirVariable = "VARVE_EMBEDDED_KILL_DIR"

// TestKill kills a process that commits under load, again and again, and looks for every commit that it had answered.
func TestKill(t *testing.T) {
	if dir := os.Getenv(killDirVariable); dir != "" {
		commitUntilKilled(dir)
		return
	}
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	dir := t.TempDir()
	answered := map[string]int64{}
	var newest int64
	for round := range rounds {
		for _, a := range runAndKill(t, dir, 20+rand.IntN(200)) {
			require.Greater(t, a.version, newest, "versions go on")
			answered[a.key] = a.version
		}
		db, err := Open(dir, Options{})
		require.NoError(t, err, "round %d", round)
		for key, version := range answered {
			require.Equal(t, key, string(getKey(t, db, key)), "round %d: answered at version %d", round, version)
			newest = max(newest, version)
		}
		commit, err := setKey(t.Context(), db, "between", "x")
		require.NoError(t, err)
		require.Greater(t, commit.Version, newest)
		newest = commit.Version
		require.NoError(t, db.Close())
	}
	t.Logf("%d answered commits survived %d kills", len(answered), rounds)
}
