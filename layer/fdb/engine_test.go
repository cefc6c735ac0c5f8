//go:build fdb

package fdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/varvedb/varve/layer/fdb/client"
	"github.com/varvedb/varve/layer/fdb/fdbtest"
	"github.com/varvedb/varve/layer/kv"
)

// The binary must start on a machine without FoundationDB.
func TestBinaryDoesNotNeedTheLibrary(t *testing.T) {
	binary, err := os.Executable()
	require.NoError(t, err)
	output, err := exec.Command("ldd", binary).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "libc", "not a dynamic binary, so the test shows nothing")
	require.NotContains(t, string(output), "libfdb_c")
}

func TestOpenRefusesOtherNetworkOptions(t *testing.T) {
	openFake(t)
	_, err := Open(t.Context(), Options{Library: fakeLibrary, ClusterFile: fdbtest.ClusterFile(t), TraceDir: t.TempDir()})
	require.ErrorIs(t, err, ErrNetworkOptions)
	require.ErrorIs(t, client.Load("/other.so"), client.ErrOtherPath)
}

func TestClosedDatabase(t *testing.T) {
	file := fdbtest.ClusterFile(t)
	db, second := openFakeAt(t, file), openFakeAt(t, file)
	set(t, db, "a", "1")
	require.Error(t, StopNetwork(), "while databases are open")
	require.NoError(t, db.Close())
	require.NoError(t, db.Close(), "twice")

	_, err := db.Transact(t.Context(), func(kv.Transaction) error { panic("runs after Close") })
	require.ErrorIs(t, err, kv.ErrClosed)
	require.ErrorIs(t, db.Ping(t.Context()), kv.ErrClosed)

	require.Equal(t, "1", get(t, second, "a"), "shares the handle that the first one had")
	require.NoError(t, second.Close())
	require.Equal(t, "1", get(t, openFakeAt(t, file), "a"), "opened again")
}

func TestValues(t *testing.T) {
	db := openFake(t)
	set(t, db, "empty", "")
	set(t, db, "", "the empty key")
	require.Equal(t, "", get(t, db, "empty"))
	require.Equal(t, "the empty key", get(t, db, ""))
	require.Equal(t, "<nil>", get(t, db, "absent"))
}

func TestRangesCrossBatches(t *testing.T) {
	const rows = 130 // the fake library gives 40 at a time
	db := openFake(t)
	_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
		for i := range rows {
			tr.Set(fmt.Appendf(nil, "k%03d", i), fmt.Appendf(nil, "v%d", i))
		}
		return nil
	})
	require.NoError(t, err)
	for _, test := range []struct {
		begin, end  string
		options     kv.RangeOptions
		first, last string
		count       int
	}{
		{"k", "l", kv.RangeOptions{}, "k000", "k129", 130},
		{"k", "l", kv.RangeOptions{Reverse: true}, "k129", "k000", 130},
		{"k", "l", kv.RangeOptions{Limit: 40}, "k000", "k039", 40},
		{"k", "l", kv.RangeOptions{Limit: 41}, "k000", "k040", 41},
		{"k", "l", kv.RangeOptions{Limit: 81, Reverse: true}, "k129", "k049", 81},
		{"k", "l", kv.RangeOptions{Limit: 500}, "k000", "k129", 130},
		{"k010", "k050", kv.RangeOptions{}, "k010", "k049", 40},
		{"k010", "k051", kv.RangeOptions{Limit: 1, Reverse: true}, "k050", "k050", 1},
		{"k010", "k010", kv.RangeOptions{}, "", "", 0},
		{"x", "y", kv.RangeOptions{}, "", "", 0},
	} {
		t.Run(fmt.Sprintf("%s-%s %+v", test.begin, test.end, test.options), func(t *testing.T) {
			require.NoError(t, db.ReadTransact(t.Context(), func(tr kv.ReadTransaction) error {
				rows, err := tr.GetRange([]byte(test.begin), []byte(test.end), test.options).Get()
				require.NoError(t, err)
				require.Len(t, rows, test.count)
				if test.count > 0 {
					require.Equal(t, test.first, string(rows[0].Key))
					require.Equal(t, test.last, string(rows[test.count-1].Key))
				}
				return nil
			}))
		})
	}
}

func TestVersionstamps(t *testing.T) {
	db := openFake(t)
	stamped := func(prefix string) []byte { // a placeholder behind the prefix, and its offset
		data := append([]byte(prefix), make([]byte, stampSize)...)
		return binary.LittleEndian.AppendUint32(data, uint32(len(prefix)))
	}
	commit, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
		tr.SetVersionstampedKey(stamped("log/"), []byte("entry"))
		tr.SetVersionstampedValue([]byte("head"), stamped("at "))
		return nil
	})
	require.NoError(t, err)
	require.NotZero(t, commit.Version)
	require.Equal(t, uint64(commit.Version), binary.BigEndian.Uint64(commit.Versionstamp[:]))
	require.Equal(t, "entry", get(t, db, "log/"+string(commit.Versionstamp[:])))
	require.Equal(t, "at "+string(commit.Versionstamp[:]), get(t, db, "head"))

	later := set(t, db, "a", "1")
	require.Greater(t, later.Version, commit.Version)

	nothing, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
		_, err := tr.Get([]byte("a")).Get()
		return err
	})
	require.NoError(t, err)
	require.Zero(t, nothing, "a commit that wrote nothing")
}

func TestWritesThatMakeNoSense(t *testing.T) {
	long := strings.Repeat("k", kv.MaxKeySize+1)
	for name, test := range map[string]struct {
		write func(kv.Transaction)
		want  error
	}{
		"key too large":            {func(tr kv.Transaction) { tr.Set([]byte(long), nil) }, kv.ErrKeyTooLarge},
		"value too large":          {func(tr kv.Transaction) { tr.Set(nil, make([]byte, kv.MaxValueSize+1)) }, kv.ErrValueTooLarge},
		"system key":               {func(tr kv.Transaction) { tr.Set([]byte("\xff/x"), nil) }, kv.ErrInvalid},
		"inverted clear":           {func(tr kv.Transaction) { tr.ClearRange([]byte("b"), []byte("a")) }, kv.ErrInvalid},
		"inverted read conflict":   {func(tr kv.Transaction) { tr.AddReadConflictRange([]byte("b"), []byte("a")) }, kv.ErrInvalid},
		"inverted write conflict":  {func(tr kv.Transaction) { tr.AddWriteConflictRange([]byte("b"), []byte("a")) }, kv.ErrInvalid},
		"stamp without offset":     {func(tr kv.Transaction) { tr.SetVersionstampedKey([]byte("abc"), nil) }, kv.ErrInvalid},
		"stamp outside of the key": {func(tr kv.Transaction) { tr.SetVersionstampedKey(make([]byte, 13), nil) }, kv.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			db := openFake(t)
			runs := 0
			_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
				runs++
				tr.Set([]byte("a"), []byte("1"))
				test.write(tr)
				return nil
			})
			require.ErrorIs(t, err, test.want)
			require.Equal(t, 1, runs)
			require.Equal(t, "<nil>", get(t, db, "a"), "nothing of it is committed")
		})
	}
}

func TestTransactionTooLarge(t *testing.T) {
	db := openFake(t)
	_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
		for i := range kv.MaxTransactionSize/kv.MaxValueSize + 1 {
			tr.Set(fmt.Appendf(nil, "%d", i), make([]byte, kv.MaxValueSize))
		}
		size, err := tr.ApproximateSize()
		require.NoError(t, err)
		require.Greater(t, size, int64(kv.MaxTransactionSize))
		return nil
	})
	require.ErrorIs(t, err, kv.ErrTransactionTooLarge)
}

// Every conflict has to show as one: the sum is that of all increments.
func TestConcurrentIncrements(t *testing.T) {
	const workers, each = 8, 25
	db := openFake(t)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range each {
				_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
					value, err := tr.Get([]byte("n")).Get()
					if err != nil {
						return err
					}
					n := uint64(0)
					if value != nil {
						n = binary.BigEndian.Uint64(value)
					}
					tr.Set([]byte("n"), binary.BigEndian.AppendUint64(nil, n+1))
					tr.Add([]byte("added"), []byte{1, 0})
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	require.Equal(t, string(binary.BigEndian.AppendUint64(nil, workers*each)), get(t, db, "n"))
	require.Equal(t, string(binary.LittleEndian.AppendUint16(nil, workers*each)), get(t, db, "added"))
}

// Transactions and futures are freed by finalizers, in any order.
func TestGarbageCollection(t *testing.T) {
	db := openFake(t)
	for i := range 200 {
		_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
			tr.Get([]byte("never waited for"))
			tr.GetRange([]byte("a"), []byte("z"), kv.RangeOptions{})
			tr.Watch([]byte("never waited for")).Cancel()
			tr.Set(fmt.Appendf(nil, "%d", i), []byte("x"))
			if i%3 == 0 {
				return errors.New("given up")
			}
			return nil
		})
		require.Equal(t, i%3 == 0, err != nil)
		if i%20 == 0 {
			runtime.GC()
		}
	}
}

// A goroutine that fn left behind must not reach into the next attempt, which uses the same C transaction.
func TestCallsAfterTheAttempt(t *testing.T) {
	db := openFake(t)
	command(t, db, "fault commit 1020 1")
	var old kv.Transaction
	var pending kv.Value
	_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
		if old == nil {
			old = tr
			tr.Set([]byte("a"), []byte("1"))
			return nil
		}
		old.Set([]byte("stray"), []byte("1"))
		_, err := old.Get([]byte("a")).Get()
		require.ErrorIs(t, err, kv.ErrInvalid)
		_, err = old.GetRange([]byte("a"), []byte("b"), kv.RangeOptions{}).Get()
		require.ErrorIs(t, err, kv.ErrInvalid)
		_, err = old.ReadVersion()
		require.ErrorIs(t, err, kv.ErrInvalid)
		require.ErrorIs(t, old.Watch([]byte("a")).Wait(t.Context()), kv.ErrInvalid)
		pending = tr.Get([]byte("b"))
		tr.Set([]byte("a"), []byte("2"))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "2", get(t, db, "a"))
	require.Equal(t, "<nil>", get(t, db, "stray"))
	_, err = pending.Get()
	if err != nil { // it may have been answered in time
		require.ErrorIs(t, err, kv.ErrInvalid)
	}
}

func TestNetworkThreadIsTheOnlyGoroutine(t *testing.T) {
	db := openFake(t)
	require.NoError(t, db.Ping(t.Context()))
	require.NoError(t, goleak.Find(fdbtest.IgnoreNetwork()))
	require.Error(t, goleak.Find(), "the network thread is not seen, so the option is not tested")
}
