package faults_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/varvedb/varve/layer/kvtest"

	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/faults"
)

func TestMain(m *testing.M) { kvtest.Main(m) }

func open(t *testing.T, rates faults.Rates) *faults.Database {
	t.Helper()
	db, err := embedded.Open("", embedded.Options{InMemory: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return faults.Wrap(db, 1, rates)
}

// observe adds one to n in every committed run, and gives how often the function ran and what n is then.
func observe(t *testing.T, db *faults.Database) (runs int, n []byte) {
	t.Helper()
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		runs++
		if runs == 2 {
			db.SetRates(faults.Rates{})
		}
		if _, err := tx.Get([]byte("other")).Get(); err != nil {
			return err
		}
		tx.Add([]byte("n"), []byte{1})
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, db.Unwrap().ReadTransact(t.Context(), func(tx kv.ReadTransaction) (err error) {
		n, err = tx.Get([]byte("n")).Get()
		return err
	}))
	return runs, n
}

func TestEachFault(t *testing.T) {
	for _, c := range []struct {
		name      string
		rates     faults.Rates
		committed byte
		want      func(faults.Counts) int64
	}{
		{"none", faults.Rates{}, 1, func(faults.Counts) int64 { return 1 }},
		{"conflict", faults.Rates{Conflict: 1}, 1, func(c faults.Counts) int64 { return c.Conflict }},
		{"too old", faults.Rates{TooOld: 1}, 1, func(c faults.Counts) int64 { return c.TooOld }},
		{"unknown, committed", faults.Rates{UnknownCommitted: 1}, 3, func(c faults.Counts) int64 { return c.UnknownCommitted }},
		{"unknown, lost", faults.Rates{UnknownLost: 1}, 1, func(c faults.Counts) int64 { return c.UnknownLost }},
		{"delay", faults.Rates{Delay: 1, MinDelay: time.Microsecond, MaxDelay: time.Millisecond}, 1, func(c faults.Counts) int64 { return c.Delay }},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := open(t, c.rates)
			runs, n := observe(t, db)
			require.Equal(t, []byte{c.committed}, n)
			require.Positive(t, c.want(db.Counts()))
			if c.name == "none" || c.name == "delay" {
				require.Equal(t, 1, runs)
			} else {
				require.Equal(t, 3, runs, "the rates went to zero in the second run, whose fate was drawn before")
			}
		})
	}
}

func TestOutage(t *testing.T) {
	db := open(t, faults.Rates{})
	var w kv.Watch
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		w = tx.Watch([]byte("n"))
		return nil
	})
	require.NoError(t, err)
	watched := make(chan error)
	go func() { watched <- w.Wait(t.Context()) }()
	db.SetOutage(true)
	require.ErrorIs(t, <-watched, kv.ErrUnavailable)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = db.Transact(ctx, func(kv.Transaction) error { panic("runs in an outage") })
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	err = db.ReadTransact(ctx, func(kv.ReadTransaction) error { panic("runs in an outage") })
	require.ErrorIs(t, err, context.DeadlineExceeded)

	done := make(chan error)
	go func() {
		runs, _ := observe(t, db)
		if runs != 1 {
			done <- errors.New("more than one run")
		}
		close(done)
	}()
	db.SetOutage(false)
	require.NoError(t, <-done)

	// An outage that begins in the middle.
	first := true
	_, err = db.Transact(t.Context(), func(tx kv.Transaction) error {
		if first {
			first = false
			db.SetOutage(true)
			_, err := tx.Get([]byte("n")).Get()
			require.ErrorIs(t, err, kv.ErrUnavailable)
			_, err = tx.GetRange(nil, []byte("z"), kv.RangeOptions{}).Get()
			require.ErrorIs(t, err, kv.ErrUnavailable)
			db.SetOutage(false)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	require.False(t, first)
}

func TestHooks(t *testing.T) {
	db := open(t, faults.Rates{})
	crash := errors.New("crash")
	var committed []kv.Commit
	db.SetHooks(faults.Hooks{
		BeforeCommit: func(context.Context) error { return crash },
		AfterCommit:  func(_ context.Context, commit kv.Commit) { committed = append(committed, commit) },
	})
	set := func() (kv.Commit, error) {
		return db.Transact(t.Context(), func(tx kv.Transaction) error { tx.Set([]byte("n"), nil); return nil })
	}
	_, err := set()
	require.ErrorIs(t, err, crash)
	require.Empty(t, committed)
	db.SetHooks(faults.Hooks{AfterCommit: func(_ context.Context, commit kv.Commit) { committed = append(committed, commit) }})
	commit, err := set()
	require.NoError(t, err)
	require.Equal(t, []kv.Commit{commit}, committed)
}

// The error of a commit that is open when the context ends says so.
func TestUnknownWhenContextEnds(t *testing.T) {
	db := open(t, faults.Rates{UnknownLost: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := db.Transact(ctx, func(tx kv.Transaction) error { tx.Set([]byte("n"), nil); return nil })
	require.ErrorIs(t, err, kv.ErrCommitUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestFunctionErrorsComeBackAsTheyAre(t *testing.T) {
	db := open(t, faults.Rates{})
	mine := errors.New("mine")
	_, err := db.Transact(t.Context(), func(kv.Transaction) error { return mine })
	require.Same(t, mine, err)
	require.Same(t, mine, db.ReadTransact(t.Context(), func(kv.ReadTransaction) error { return mine }))
}
