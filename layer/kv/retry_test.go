package kv_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

var testBackoff = kv.Backoff{First: time.Millisecond, Max: 100 * time.Millisecond}

// attempts gives an attempt that fails with the given errors in turn, then with nil.
func attempts(errs ...error) func() error {
	return func() error {
		if len(errs) == 0 {
			return nil
		}
		err := errs[0]
		errs = errs[1:]
		return err
	}
}

func TestRetryUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, kv.Retry(t.Context(), testBackoff, attempts(kv.ErrConflict, kv.ErrTooOld, kv.ErrCommitUnknown, kv.ErrUnavailable)))
	})
}

func TestRetryGivesUpOnOtherErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("mine")
		require.Same(t, mine, kv.Retry(t.Context(), testBackoff, attempts(kv.ErrConflict, mine)))
		require.Same(t, mine, kv.Retry(t.Context(), testBackoff, attempts(kv.ErrCommitUnknown, mine)), "the function decides, whatever was before")
	})
}

func TestRetryWhenContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		runs := 0
		start := time.Now()
		err := kv.Retry(ctx, testBackoff, func() error { runs++; return kv.ErrUnavailable })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, kv.ErrUnavailable, "the last failure is told")
		require.NotErrorIs(t, err, kv.ErrCommitUnknown)
		require.Equal(t, 10*time.Second, time.Since(start), "it stops at once")
		require.Greater(t, runs, 90)
		require.Less(t, runs, 300)

		err = kv.Retry(ctx, testBackoff, func() error { panic("runs in a context that has ended") })
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestRetryRemembersUnknownCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, later := range map[string]func(ctx context.Context, cancel func()) error{
			"conflict":             func(_ context.Context, cancel func()) error { cancel(); return kv.ErrConflict },
			"error of the context": func(ctx context.Context, cancel func()) error { cancel(); return ctx.Err() },
			"closed":               func(context.Context, func()) error { return kv.ErrClosed },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			first := true
			err := kv.Retry(ctx, testBackoff, func() error {
				if first {
					first = false
					return kv.ErrCommitUnknown
				}
				return later(ctx, cancel)
			})
			cancel()
			require.ErrorIs(t, err, kv.ErrCommitUnknown, name)
		}
	})
}

func TestBackoffGrowsToItsMaximum(t *testing.T) {
	for run, step := range map[int]time.Duration{1: time.Millisecond, 2: 2 * time.Millisecond, 5: 16 * time.Millisecond, 8: 100 * time.Millisecond, 1 << 30: 100 * time.Millisecond} {
		for range 100 {
			wait := testBackoff.Wait(run)
			require.GreaterOrEqual(t, wait, step/2)
			require.LessOrEqual(t, wait, step)
		}
	}
	require.Zero(t, kv.Backoff{}.Wait(1))
}
