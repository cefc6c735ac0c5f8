//go:build fdb

package fdb

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/fdb/fdbtest"
	"github.com/varvedb/varve/layer/kv"
)

// The tests of nodes rely on the store that processes of the fake library share. TestSharedStore has processes count in it while they are killed and
// stopped, with snapshots of the log all the time, and checks that each did what it was told it did.

const sharedWriters = 4

// writerVariable makes the test binary a process of TestSharedStore: its number.
const writerVariable = "FDB_TEST_WRITER"

// sharedWriter is a process of TestSharedStore, from the outside.
type sharedWriter struct {
	cmd   *exec.Cmd
	acks  *atomic.Int64 // the last number that was acknowledged, over all processes of this writer
	ended chan error
}

func startSharedWriter(t *testing.T, library, clusterFile string, number int, acks *atomic.Int64) *sharedWriter {
	t.Helper()
	w := &sharedWriter{acks: acks, ended: make(chan error, 1)}
	w.cmd = exec.Command(os.Args[0], "-test.run=^TestSharedWriter$", "-test.timeout=2m")
	w.cmd.Env = append(os.Environ(), "VARVE_TEST_CLUSTER_FILE="+clusterFile, "VARVE_TEST_FDB_LIBRARY="+library, writerVariable+"="+strconv.Itoa(number))
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.cmd.Start())
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var n int64
			if _, err := fmt.Sscanf(lines.Text(), "ack %d", &n); err == nil {
				acks.Store(n)
			}
		}
		w.ended <- w.cmd.Wait()
	}()
	return w
}

func (w *sharedWriter) kill() {
	_ = w.cmd.Process.Kill()
	<-w.ended
}

func TestSharedStore(t *testing.T) {
	if fakeLibrary == "" {
		t.Skip("needs the fake client library")
	}
	library, err := fdbtest.BuildLibrary(t.TempDir(), "libfdb_c.so", "LOG_SNAPSHOT_BYTES=50000")
	require.NoError(t, err)
	clusterFile := fdbtest.SharedClusterFile(t)
	seed := mathrand.Uint64()
	t.Logf("seed %d", seed)
	random := mathrand.New(mathrand.NewPCG(seed, 0))
	var acks [sharedWriters]atomic.Int64
	var writers [sharedWriters]*sharedWriter
	for i := range writers {
		writers[i] = startSharedWriter(t, library, clusterFile, i, &acks[i])
		t.Cleanup(func() { _ = writers[i].cmd.Process.Kill() })
	}
	for began := time.Now(); time.Since(began) < 2*time.Second; {
		i := random.IntN(sharedWriters)
		pause := time.Duration(random.IntN(100)) * time.Millisecond
		if random.IntN(2) == 0 {
			writers[i].kill()
			writers[i] = startSharedWriter(t, library, clusterFile, i, &acks[i])
			time.Sleep(pause)
			continue
		}
		require.NoError(t, writers[i].cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(pause)
		require.NoError(t, writers[i].cmd.Process.Signal(syscall.SIGCONT))
	}
	db := openFakeAt(t, clusterFile)
	set(t, db, "stop", "now")
	for i, w := range writers {
		select {
		case err := <-w.ended:
			require.NoError(t, err, "writer %d", i)
		case <-time.After(30 * time.Second):
			t.Fatalf("writer %d does not see that it should stop", i)
		}
	}
	checkShared(t, db, &acks)
}

// checkShared compares what writers were told with what there is.
func checkShared(t *testing.T, db *Database, acks *[sharedWriters]atomic.Int64) {
	t.Helper()
	require.NoError(t, db.ReadTransact(t.Context(), func(tr kv.ReadTransaction) error {
		var sum, last [sharedWriters]int64
		rows, err := tr.GetRange([]byte("log/"), []byte("log0"), kv.RangeOptions{}).Get()
		if err != nil {
			return err
		}
		for _, row := range rows {
			var writer, n int64
			if _, err := fmt.Sscanf(string(row.Value), "%d %d", &writer, &n); err != nil {
				return err
			}
			require.Equal(t, last[writer]+1, n, "writer %d", writer)
			last[writer] = n
			sum[writer]++
		}
		var all int64
		for i := range acks {
			own, err := count(tr, ownKey(i))
			if err != nil {
				return err
			}
			acked := acks[i].Load()
			t.Logf("writer %d: %d commits, %d acknowledged", i, own, acked)
			require.Positive(t, acked)
			require.Equal(t, own, sum[i])
			require.True(t, own == acked || own == acked+1, "writer %d: %d commits, %d acknowledged", i, own, acked)
			all += own
		}
		total, err := count(tr, []byte("total"))
		require.Equal(t, all, total)
		added, err2 := count(tr, []byte("added"))
		require.Equal(t, all, added)
		return errors.Join(err, err2)
	}))
}

func ownKey(writer int) []byte { return fmt.Appendf(nil, "own/%d", writer) }

func count(tr kv.ReadTransaction, key []byte) (int64, error) {
	value, err := tr.Get(key).Get()
	if err != nil || value == nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// TestSharedWriter is a process of TestSharedStore: it counts until the key "stop" is there.
func TestSharedWriter(t *testing.T) {
	number, err := strconv.Atoi(os.Getenv(writerVariable))
	if err != nil {
		t.Skip("a part of TestSharedStore")
	}
	db, err := Open(t.Context(), Options{ClusterFile: os.Getenv("VARVE_TEST_CLUSTER_FILE"), Library: os.Getenv("VARVE_TEST_FDB_LIBRARY")})
	require.NoError(t, err)
	defer db.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watched := make(chan error, 1)
	go func() { watched <- awaitKey(ctx, db, "stop"); stop() }()
	var next int64
	require.NoError(t, db.ReadTransact(ctx, func(tr kv.ReadTransaction) error {
		next, err = count(tr, ownKey(number))
		return err
	}))
	for ctx.Err() == nil {
		next++
		_, err := db.Transact(t.Context(), func(tr kv.Transaction) error { return countUp(tr, number, next) })
		require.NoError(t, err)
		_, err = io.WriteString(os.Stdout, fmt.Sprintf("ack %d\n", next))
		require.NoError(t, err)
	}
	require.NoError(t, <-watched)
}

// countUp makes a writer's count n, once: the run of a transaction before may have been committed.
func countUp(tr kv.Transaction, writer int, n int64) error {
	own, err := count(tr, ownKey(writer))
	if err != nil || own == n {
		return err
	}
	if own != n-1 {
		return fmt.Errorf("writer %d has counted to %d, and comes to %d", writer, own, n)
	}
	total, err := count(tr, []byte("total"))
	if err != nil {
		return err
	}
	tr.Set(ownKey(writer), binary.LittleEndian.AppendUint64(nil, uint64(n)))
	tr.Set([]byte("total"), binary.LittleEndian.AppendUint64(nil, uint64(total+1)))
	tr.Add([]byte("added"), binary.LittleEndian.AppendUint64(nil, 1))
	stamped := append([]byte("log/"), make([]byte, 10)...)
	tr.SetVersionstampedKey(binary.LittleEndian.AppendUint32(stamped, 4), fmt.Appendf(nil, "%d %d", writer, n))
	filler := make([]byte, 2000)
	_, _ = rand.Read(filler) // never fails
	tr.Set(fmt.Appendf(nil, "filler/%d", n%16), filler)
	return nil
}

// awaitKey returns when a key is there.
func awaitKey(ctx context.Context, db *Database, key string) error {
	for {
		var w kv.Watch
		var there bool
		_, err := db.Transact(ctx, func(tr kv.Transaction) error {
			value, err := tr.Get([]byte(key)).Get()
			there, w = value != nil, nil
			if err == nil && !there {
				w = tr.Watch([]byte(key))
			}
			return err
		})
		if err != nil || there {
			return err
		}
		_ = w.Wait(ctx) // an error says as much as that it fired: read again
		w.Cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// A line that is cut leaves a process without answers until it is healed.
func TestSharedLine(t *testing.T) {
	clusterFile := fdbtest.SharedClusterFile(t)
	line := fdbtest.NewLine(t, clusterFile)
	name, value, _ := strings.Cut(line.Environment(), "=")
	t.Setenv(name, value)
	db := openFakeAt(t, clusterFile, attemptTimeout(50*time.Millisecond))
	set(t, db, "a", "1")
	line.Cut()
	_, err := db.Transact(within(t, soon), func(tr kv.Transaction) error {
		_, err := tr.Get([]byte("a")).Get()
		return err
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	line.Heal()
	require.Equal(t, "1", get(t, db, "a"))
	line.Slow(15 * time.Millisecond)
	began := time.Now()
	require.Equal(t, "1", get(t, db, "a"))
	require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	require.Nil(t, fdbtest.NewLine(t, fdbtest.ClusterFile(t)))
	require.FileExists(t, filepath.Join(filepath.Dir(clusterFile), "fdb.cluster.store"))
}
