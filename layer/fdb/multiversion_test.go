//go:build fdb

package fdb

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

// A client with external libraries has no transaction underneath until it has found out the cluster's version: then cancelling ends
// nothing, neither of transactions nor of futures.

// openUnconnected opens a cluster that a multi-version client has not reached yet.
func openUnconnected(t testing.TB, change ...func(*Options)) *Database {
	t.Helper()
	db := openFake(t, change...)
	command(t, db, "connected 0")
	return db
}

func TestWaitsEndBeforeTheClientIsConnected(t *testing.T) {
	t.Run("deadline of a read", func(t *testing.T) {
		runs := 0
		_, err := openUnconnected(t).Transact(within(t, soon), counted(&runs))
		require.ErrorIs(t, err, kv.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, runs)
	})
	t.Run("deadline of a commit", func(t *testing.T) {
		_, err := openUnconnected(t).Transact(within(t, soon), func(tr kv.Transaction) error { tr.Set(nil, nil); return nil })
		require.ErrorIs(t, err, kv.ErrCommitUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("deadline of a back-off", func(t *testing.T) {
		_, err := openUnconnected(t).Transact(within(t, soon), func(kv.Transaction) error { return fmt.Errorf("made by a test: %w", kv.ErrConflict) })
		require.ErrorIs(t, err, kv.ErrConflict)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("ping", func(t *testing.T) {
		require.ErrorIs(t, openUnconnected(t).Ping(within(t, soon)), kv.ErrUnavailable)
	})
	t.Run("close", func(t *testing.T) {
		db := openUnconnected(t)
		started, result := make(chan struct{}), make(chan error)
		go func() {
			result <- db.ReadTransact(t.Context(), func(tr kv.ReadTransaction) error {
				close(started)
				_, err := tr.Get([]byte("a")).Get()
				return err
			})
		}()
		<-started
		require.NoError(t, db.Close())
		require.ErrorIs(t, <-result, kv.ErrClosed)
	})
	t.Run("watch of a run that failed", func(t *testing.T) {
		var w kv.Watch
		_, err := openUnconnected(t).Transact(within(t, until), func(tr kv.Transaction) error {
			w = tr.Watch([]byte("a"))
			return errors.New("given up")
		})
		require.Error(t, err)
		err = w.Wait(within(t, until))
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

// Connecting changes the version under every transaction, which tells them so by cluster_version_changed.
func TestTransactionsGoOnWhenTheClientConnects(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"in one attempt": until, "after attempts that timed out": soon} {
		t.Run(name, func(t *testing.T) {
			db := openUnconnected(t, attemptTimeout(timeout))
			time.AfterFunc(3*soon, func() { command(t, db, "connected 1") })
			runs := 0
			commit, err := db.Transact(within(t, until), counted(&runs))
			require.NoError(t, err)
			require.NotZero(t, commit)
			require.GreaterOrEqual(t, runs, 2)
			require.Equal(t, "1", get(t, db, "a"))
		})
	}
}

// A goroutine that fn left behind must not end the commit with used_during_commit, which says nothing about the outcome.
func TestCallsDuringTheCommit(t *testing.T) {
	db := openFake(t)
	command(t, db, "hang commit 1")
	strays, committed := make(chan kv.Transaction, 1), make(chan error)
	go func() {
		_, err := db.Transact(within(t, until), func(tr kv.Transaction) error {
			tr.Set([]byte("a"), []byte("1"))
			strays <- tr
			return nil
		})
		committed <- err
	}()
	stray := <-strays
	require.Eventually(t, func() bool {
		_, err := stray.ReadVersion() // answered by the engine from the commit on
		return errors.Is(err, kv.ErrInvalid)
	}, until, time.Millisecond)
	_, err := stray.Get([]byte("b")).Get()
	require.ErrorIs(t, err, kv.ErrInvalid)
	_, err = stray.ApproximateSize()
	require.ErrorIs(t, err, kv.ErrInvalid)
	stray.Set([]byte("b"), []byte("1"))
	stray.AddReadConflictRange([]byte("b"), []byte("c"))
	command(t, db, "hang commit 0")
	require.NoError(t, <-committed)
	require.Equal(t, "1", get(t, db, "a"))
	require.Equal(t, "<nil>", get(t, db, "b"))
}
