package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

func TestCloseEndsWhatRuns(t *testing.T) {
	db := openTest(t, "", Options{InMemory: true})
	var w kv.Watch
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		w = tx.Watch([]byte("k"))
		return nil
	})
	require.NoError(t, err)

	reading, closed := make(chan struct{}), make(chan struct{})
	var clients sync.WaitGroup
	clients.Go(func() {
		_, err := db.Transact(context.Background(), func(tx kv.Transaction) error {
			_, err := tx.Get([]byte("k")).Get()
			require.NoError(t, err)
			close(reading)
			<-closed // Close does not wait for functions
			_, err = tx.Get([]byte("k")).Get()
			require.ErrorIs(t, err, kv.ErrClosed)
			_, err = tx.GetRange(nil, []byte("z"), kv.RangeOptions{}).Get()
			require.ErrorIs(t, err, kv.ErrClosed)
			tx.Set([]byte("k"), nil)
			return nil
		})
		require.ErrorIs(t, err, kv.ErrClosed)
	})
	<-reading
	require.NoError(t, db.Close())
	close(closed)
	clients.Wait()
	require.ErrorIs(t, w.Wait(t.Context()), kv.ErrClosed)
	w.Cancel()
	require.ErrorIs(t, db.ReadTransact(t.Context(), func(kv.ReadTransaction) error { return nil }), kv.ErrClosed)
}

// A commit that is on its way when Close is called is either answered, and then on disk, or refused.
func TestCloseUnderLoad(t *testing.T) {
	for range 20 {
		memory := vfs.NewMem()
		db, err := Open("db", Options{FS: memory})
		require.NoError(t, err)
		var mu sync.Mutex
		var answered []string
		var clients sync.WaitGroup
		started := make(chan struct{}, 1)
		for client := range 8 {
			clients.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Sprint(client, "-", i)
					_, err := setKey(context.Background(), db, key, "x")
					if errors.Is(err, kv.ErrClosed) {
						return
					}
					require.NoError(t, err)
					mu.Lock()
					answered = append(answered, key)
					mu.Unlock()
					select {
					case started <- struct{}{}:
					default:
					}
				}
			})
		}
		<-started
		require.NoError(t, db.Close())
		clients.Wait()
		again, err := Open("db", Options{FS: memory})
		require.NoError(t, err)
		for _, key := range answered {
			require.NotNil(t, getKey(t, again, key))
		}
		require.NoError(t, again.Close())
	}
}

func TestCancelledWhileTheDiskIsStuck(t *testing.T) {
	disk := &countingFS{}
	db := openTest(t, "db", Options{FS: disk.wrap(vfs.NewMem())})
	disk.stuck.Lock()
	var clients sync.WaitGroup
	withdrawn := make(chan string, 10)
	for i := range cap(withdrawn) {
		clients.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			key := fmt.Sprint(i)
			_, err := setKey(ctx, db, key, "x")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			if !errors.Is(err, kv.ErrCommitUnknown) {
				withdrawn <- key
			}
		})
	}
	clients.Wait() // they do not wait for the disk
	disk.stuck.Unlock()
	_, err := setKey(t.Context(), db, "after", "x")
	require.NoError(t, err)
	close(withdrawn)
	for key := range withdrawn {
		require.Nil(t, getKey(t, db, key), "%s was not committed", key)
	}
}

func TestTransactionUsedAfterItsEnd(t *testing.T) {
	db := openTest(t, "", Options{InMemory: true})
	var kept kv.Transaction
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		kept = tx
		return nil
	})
	require.NoError(t, err)
	_, err = kept.Get([]byte("a")).Get()
	require.ErrorIs(t, err, kv.ErrInvalid)
	require.Error(t, kept.Watch([]byte("a")).Wait(t.Context()))
	kept.Set([]byte("a"), nil)
	require.Nil(t, getKey(t, db, "a"))
}

func TestForgottenWritesMakeTransactionsTooOld(t *testing.T) {
	db := openTest(t, "", Options{InMemory: true, MaxTrackedWrites: 10})
	var errs []error
	first := true
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		if _, err := tx.Get([]byte("a")).Get(); err != nil {
			return err
		}
		if first {
			first = false
			for i := range 20 {
				_, err := setKey(t.Context(), db, fmt.Sprint("other", i), "x")
				require.NoError(t, err)
			}
			tx.Set([]byte("b"), nil)
			_, err := tx.(*transaction).commit()
			errs = append(errs, err)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], kv.ErrTooOld)
}

// What a transaction has set or cleared itself it can read without a conflict.
func TestReadsOfOwnWritesDoNotConflict(t *testing.T) {
	db := openTest(t, "", Options{InMemory: true})
	runs := 0
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		runs++
		if _, err := tx.Get([]byte("read")).Get(); err != nil {
			return err
		}
		tx.Set([]byte("set"), []byte("1"))
		tx.Clear([]byte("cleared"))
		tx.ClearRange([]byte("range/"), []byte("range0"))
		for _, key := range []string{"set", "cleared", "range/1"} {
			if _, err := tx.Get([]byte(key)).Get(); err != nil {
				return err
			}
			_, err := setKey(t.Context(), db, key, "other")
			require.NoError(t, err)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, runs)
}
