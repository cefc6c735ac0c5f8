//go:build fdb

package fdb

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

// watchOn gives a watch of a committed transaction on key.
func watchOn(t testing.TB, db *Database, key string) kv.Watch {
	t.Helper()
	var w kv.Watch
	_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
		w = tr.Watch([]byte(key))
		return nil
	})
	require.NoError(t, err)
	t.Cleanup(w.Cancel)
	return w
}

func TestWatchFires(t *testing.T) {
	db := openFake(t)
	set(t, db, "a", "1")
	w := watchOn(t, db, "a")
	set(t, db, "b", "1")
	set(t, db, "a", "1")
	require.ErrorIs(t, w.Wait(within(t, soon)), context.DeadlineExceeded, "nothing has changed")

	w = watchOn(t, db, "a")
	fired := make(chan error)
	go func() { fired <- w.Wait(within(t, until)) }()
	set(t, db, "a", "2")
	require.NoError(t, <-fired)
	require.NoError(t, w.Wait(t.Context()), "a watch that fired stays so")
}

func TestWatchSeesItsOwnTransaction(t *testing.T) {
	db := openFake(t)
	var w kv.Watch
	_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
		tr.Set([]byte("a"), []byte("1"))
		w = tr.Watch([]byte("a"))
		return nil
	})
	require.NoError(t, err)
	require.ErrorIs(t, w.Wait(within(t, soon)), context.DeadlineExceeded, "its own write is what it saw")
}

func TestWatchEnds(t *testing.T) {
	t.Run("cancel", func(t *testing.T) {
		w := watchOn(t, openFake(t), "a")
		ended := make(chan error)
		go func() { ended <- w.Wait(within(t, until)) }()
		w.Cancel()
		w.Cancel()
		var e *Error
		require.ErrorAs(t, <-ended, &e)
		require.Equal(t, codeOperationCancelled, e.Code)
	})
	t.Run("close", func(t *testing.T) {
		db := openFake(t)
		w := watchOn(t, db, "a")
		ended := make(chan error)
		go func() { ended <- w.Wait(within(t, until)) }()
		require.NoError(t, db.Close())
		require.ErrorIs(t, <-ended, kv.ErrClosed)
		require.ErrorIs(t, w.Wait(t.Context()), kv.ErrClosed)
	})
	t.Run("two waiters", func(t *testing.T) {
		db := openFake(t)
		w := watchOn(t, db, "a")
		ended := make(chan error)
		for range 2 {
			go func() { ended <- w.Wait(within(t, until)) }()
		}
		set(t, db, "a", "1")
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
	})
	t.Run("not committed", func(t *testing.T) {
		db := openFake(t)
		var w kv.Watch
		_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
			w = tr.Watch([]byte("a"))
			return errors.New("given up")
		})
		require.Error(t, err)
		require.Error(t, w.Wait(within(t, until)))
	})
	t.Run("retried", func(t *testing.T) {
		db := openFake(t)
		command(t, db, "fault commit 1020 1")
		var watches []kv.Watch
		_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
			tr.Set([]byte("b"), []byte("1"))
			watches = append(watches, tr.Watch([]byte("a")))
			return nil
		})
		require.NoError(t, err)
		require.Len(t, watches, 2)
		err = watches[0].Wait(within(t, until))
		require.Error(t, err, "of the run that was not committed")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		set(t, db, "a", "1")
		require.NoError(t, watches[1].Wait(within(t, until)))
	})
}
