package kvtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

func retryChecks() []check {
	return []check{
		{"retries/a retryable error of the function", retryableErrorOfFunction},
		{"retries/until the context ends", retriesUntilContextEnds},
		{"retries/a context that has ended", contextThatHasEnded},
		{"retries/a context that ends in the function", contextEndsInFunction},
		{"retries/a context that ends while committing", contextEndsWhileCommitting},
	}
}

func retryableErrorOfFunction(e *env) {
	for _, kind := range []error{kv.ErrConflict, kv.ErrTooOld, kv.ErrCommitUnknown, kv.ErrUnavailable} {
		runs := 0
		e.do(func(tx kv.Transaction) error {
			runs++
			tx.Set(fmt.Append(nil, "run ", runs), nil)
			if runs < 3 {
				return fmt.Errorf("what it was doing: %w", kind)
			}
			return nil
		})
		require.GreaterOrEqual(e, runs, 3)
		require.Nil(e, e.get("run 1"), "a run that failed is not committed")
		require.NotNil(e, e.get(fmt.Sprint("run ", runs)))
		runs = 0
		e.read(func(kv.ReadTransaction) error {
			if runs++; runs < 3 {
				return fmt.Errorf("what it was doing: %w", kind)
			}
			return nil
		})
		require.GreaterOrEqual(e, runs, 3)
		e.write(func(tx kv.Transaction) { tx.ClearRange(nil, b("\xff")) })
	}
}

func retriesUntilContextEnds(e *env) {
	ctx, cancel := context.WithTimeout(e.ctx, time.Second)
	defer cancel()
	runs := 0
	_, err := e.db.Transact(ctx, func(tx kv.Transaction) error {
		runs++
		if _, err := tx.Get(b("a")).Get(); err != nil {
			return err
		}
		e.set("a", fmt.Sprint(runs)) // with the longer context
		tx.Set(b("b"), b("never"))
		return nil
	})
	require.ErrorIs(e, err, context.DeadlineExceeded)
	require.Greater(e, runs, 1)
	require.Nil(e, e.get("b"))
}

func contextThatHasEnded(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := e.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set(b("a"), b("1"))
		return nil
	})
	require.ErrorIs(e, err, context.Canceled)
	err = e.db.ReadTransact(ctx, func(tx kv.ReadTransaction) error {
		_, err := tx.Get(b("a")).Get()
		return err
	})
	require.ErrorIs(e, err, context.Canceled)
	require.Nil(e, e.get("a"))
}

func contextEndsInFunction(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	_, err := e.db.Transact(ctx, func(tx kv.Transaction) error {
		if _, err := tx.Get(b("a")).Get(); err != nil {
			return err
		}
		tx.Set(b("a"), b("1"))
		cancel()
		return nil
	})
	// It may have been committed all the same, but then it has to say so.
	require.Error(e, err)
	require.True(e, errors.Is(err, context.Canceled) || errors.Is(err, kv.ErrCommitUnknown), "%v", err)
	if !errors.Is(err, kv.ErrCommitUnknown) {
		require.Nil(e, e.get("a"))
	}
}

// contextEndsWhileCommitting cancels at any moment around the commit: an error that is not "unknown" means not committed, no error
// means committed.
func contextEndsWhileCommitting(e *env) {
	for i := range 40 {
		key := fmt.Sprint("k", i)
		ctx, cancel := context.WithCancel(e.ctx)
		timer := time.AfterFunc(time.Duration(i)*25*time.Microsecond, cancel)
		_, err := e.db.Transact(ctx, func(tx kv.Transaction) error {
			tx.Set(b(key), b("1"))
			return nil
		})
		timer.Stop()
		cancel()
		switch {
		case err == nil:
			require.NotNil(e, e.get(key), "%s was committed", key)
		case errors.Is(err, kv.ErrCommitUnknown):
		default:
			require.ErrorIs(e, err, context.Canceled)
			require.Nil(e, e.get(key), "%s: %v", key, err)
		}
	}
}
