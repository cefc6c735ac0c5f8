//go:build fdb

package fdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

// soon is a deadline for what must take its time, until is one for what must not.
const soon, until = 30 * time.Millisecond, 10 * time.Second

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// counted writes a, and counts its runs.
func counted(runs *int) func(kv.Transaction) error {
	return func(tr kv.Transaction) error {
		*runs++
		if _, err := tr.Get([]byte("b")).Get(); err != nil {
			return fmt.Errorf("reading b: %w", err)
		}
		tr.Set([]byte("a"), []byte("1"))
		return nil
	}
}

func TestRetriedErrors(t *testing.T) {
	db := openFake(t)
	for _, test := range []struct {
		point string
		code  int
	}{
		{"grv", 1007}, {"grv", 1037}, {"grv", 1039}, {"grv", 1078}, {"grv", 1213},
		{"read", 1007}, {"read", 1009}, {"read", 1026}, {"read", 1037},
		{"commit", 1007}, {"commit", 1020}, {"commit", 1021}, {"commit", 1039}, {"commit", 1042}, {"commit", 1051},
		{"committed", 1021}, {"committed", 1039},
	} {
		t.Run(fmt.Sprintf("%s %d", test.point, test.code), func(t *testing.T) {
			command(t, db, "fault %s %d 2", test.point, test.code)
			runs := 0
			commit, err := db.Transact(within(t, until), counted(&runs))
			require.NoError(t, err)
			require.Equal(t, 3, runs)
			require.NotZero(t, commit)
		})
	}
}

func TestErrorsThatEndATransaction(t *testing.T) {
	for _, test := range []struct {
		point string
		code  int
		want  error
	}{
		{"read", 1036, kv.ErrInvalid},
		{"read", 2004, kv.ErrInvalid},
		{"commit", 1038, kv.ErrLocked},
		{"commit", 2101, kv.ErrTransactionTooLarge},
		{"commit", 2102, kv.ErrKeyTooLarge},
		{"commit", 2103, kv.ErrValueTooLarge},
		{"commit", 1031, kv.ErrCommitUnknown},
		{"committed", 1031, kv.ErrCommitUnknown},
		{"committed", 1022, kv.ErrCommitUnknown},
	} {
		t.Run(fmt.Sprintf("%s %d", test.point, test.code), func(t *testing.T) {
			db := openFake(t)
			command(t, db, "fault %s %d 1", test.point, test.code)
			runs := 0
			_, err := db.Transact(within(t, until), counted(&runs))
			require.ErrorIs(t, err, test.want)
			require.ErrorContains(t, err, fmt.Sprintf("(%d)", test.code))
			require.Equal(t, 1, runs)
		})
	}
}

func TestUnknownCode(t *testing.T) {
	db := openFake(t)
	command(t, db, "fault commit 1999 1")
	_, err := db.Transact(t.Context(), func(tr kv.Transaction) error { tr.Set(nil, nil); return nil })
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 1999, e.Code)
	require.EqualError(t, err, "foundationdb: commit: unknown (1999)")
	require.False(t, kv.Retryable(err))
}

func TestErrorOfTheFunction(t *testing.T) {
	db := openFake(t)
	mine := errors.New("mine")
	_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
		tr.Set([]byte("a"), []byte("1"))
		return mine
	})
	require.Equal(t, mine, err)
	require.Equal(t, "<nil>", get(t, db, "a"))

	runs := 0
	_, err = db.Transact(t.Context(), func(kv.Transaction) error {
		if runs++; runs < 3 {
			return fmt.Errorf("made by a test: %w", kv.ErrConflict)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 3, runs, "a kind without a code is retried as well")
}

func TestRetryLimit(t *testing.T) {
	db := openFake(t, func(o *Options) { o.RetryLimit = 2 })
	command(t, db, "fault commit 1020 100")
	runs := 0
	_, err := db.Transact(t.Context(), counted(&runs))
	require.ErrorIs(t, err, kv.ErrConflict)
	require.Equal(t, 3, runs)
}

func TestTooOld(t *testing.T) {
	db := openFake(t)
	runs := 0
	err := db.ReadTransact(t.Context(), func(tr kv.ReadTransaction) error {
		if _, err := tr.ReadVersion(); err != nil {
			return err
		}
		if runs++; runs == 1 {
			command(t, db, "advance 6000000")
		}
		_, err := tr.Get([]byte("a")).Get()
		if runs == 1 {
			require.ErrorIs(t, err, kv.ErrTooOld)
		}
		return err
	})
	require.NoError(t, err)
	require.Equal(t, 2, runs)
}

func TestLockedDatabase(t *testing.T) {
	db := openFake(t)
	command(t, db, "lock 1")
	require.ErrorIs(t, db.Ping(t.Context()), kv.ErrLocked)
	_, err := db.Transact(t.Context(), func(tr kv.Transaction) error { tr.Set(nil, nil); return nil })
	require.ErrorIs(t, err, kv.ErrLocked)
	command(t, db, "lock 0")
	require.NoError(t, db.Ping(t.Context()))
}

func TestContextEndsAWait(t *testing.T) {
	for _, point := range []string{"grv", "read"} {
		t.Run(point, func(t *testing.T) {
			db := openFake(t)
			command(t, db, "hang %s 1", point)
			runs := 0
			_, err := db.Transact(within(t, soon), counted(&runs))
			require.ErrorIs(t, err, kv.ErrUnavailable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 1, runs)

			ctx, cancel := context.WithCancelCause(t.Context())
			reason := errors.New("the reason")
			time.AfterFunc(soon, func() { cancel(reason) })
			_, err = db.Transact(ctx, counted(&runs))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, reason)
			require.NotErrorIs(t, err, kv.ErrUnavailable, "the cluster is not to blame")

			_, err = db.Transact(ctx, func(kv.Transaction) error { panic("runs with an ended context") })
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

func TestContextEndsACommit(t *testing.T) {
	db := openFake(t)
	command(t, db, "hang commit 1")
	runs := 0
	_, err := db.Transact(within(t, soon), counted(&runs))
	require.ErrorIs(t, err, kv.ErrCommitUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, runs)

	_, err = db.Transact(within(t, soon), func(tr kv.Transaction) error {
		_, err := tr.Get([]byte("a")).Get()
		return err
	})
	require.NoError(t, err, "nothing to commit")
}

func TestContextEndsABackoff(t *testing.T) {
	db := openFake(t)
	command(t, db, "fault commit 1020 100")
	command(t, db, "hang backoff 1")
	runs := 0
	_, err := db.Transact(within(t, soon), counted(&runs))
	require.ErrorIs(t, err, kv.ErrConflict)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, runs)
}

func TestAttemptTimeout(t *testing.T) {
	t.Run("read", func(t *testing.T) {
		db := openFake(t, attemptTimeout(soon))
		command(t, db, "hang read 1")
		runs := 0
		_, err := db.Transact(within(t, until), func(tr kv.Transaction) error {
			if runs == 2 {
				command(t, db, "hang read 0")
			}
			return counted(&runs)(tr)
		})
		require.NoError(t, err)
		require.Equal(t, 3, runs)
	})
	t.Run("retry limit", func(t *testing.T) {
		db := openFake(t, attemptTimeout(soon), func(o *Options) { o.RetryLimit = 1 })
		command(t, db, "hang grv 1")
		runs := 0
		_, err := db.Transact(within(t, until), counted(&runs))
		require.ErrorIs(t, err, kv.ErrUnavailable)
		require.ErrorContains(t, err, "no answer within the transaction timeout")
		require.Equal(t, 2, runs)
	})
	t.Run("commit", func(t *testing.T) {
		db := openFake(t, attemptTimeout(soon))
		command(t, db, "hang commit 1")
		time.AfterFunc(3*soon, func() { command(t, db, "hang commit 0") })
		runs := 0
		commit, err := db.Transact(within(t, until), counted(&runs))
		require.NoError(t, err)
		require.NotZero(t, commit)
		require.Equal(t, 1, runs, "a commit is not given up: a retry could be overtaken by it")
	})
	t.Run("slow function", func(t *testing.T) {
		db := openFake(t, attemptTimeout(soon))
		runs := 0
		_, err := db.Transact(within(t, until), func(tr kv.Transaction) error {
			if runs++; runs == 1 {
				<-tr.(*attempt).run.ctx.Done()
			}
			tr.Set([]byte("a"), []byte("1"))
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 2, runs, "a commit that was not handed over is not unknown")
	})
}

func TestCloseEndsWaits(t *testing.T) {
	for _, point := range []string{"read", "commit"} {
		t.Run(point, func(t *testing.T) {
			db := openFake(t)
			command(t, db, "hang %s 1", point)
			started := make(chan struct{})
			result := make(chan error)
			go func() {
				_, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
					close(started)
					runs := 0
					return counted(&runs)(tr)
				})
				result <- err
			}()
			<-started
			closed := make(chan error)
			go func() { closed <- db.Close() }()
			err := <-result
			if !errors.Is(err, kv.ErrCommitUnknown) { // the commit may have been in flight
				require.ErrorIs(t, err, kv.ErrClosed)
			}
			require.NoError(t, <-closed)
		})
	}
}

func TestPing(t *testing.T) {
	db := openFake(t)
	require.NoError(t, db.Ping(t.Context()))
	command(t, db, "hang grv 1")
	require.ErrorIs(t, db.Ping(within(t, soon)), kv.ErrUnavailable)
}

func TestWaitReachable(t *testing.T) {
	var log bytes.Buffer
	db := openFake(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	require.Contains(t, log.String(), "fake:Varve1@127.0.0.1:4500")
	require.Contains(t, log.String(), "client_version=7.3.0")

	command(t, db, "hang grv 1")
	require.ErrorIs(t, db.WaitReachable(within(t, 4*soon), soon), kv.ErrUnavailable)
	require.Contains(t, log.String(), "foundationdb cluster is not available")

	time.AfterFunc(soon, func() { command(t, db, "hang grv 0") })
	require.NoError(t, db.WaitReachable(within(t, until), soon))
}

// A caller must not take a transaction for uncommitted because its last attempt was.
func TestUnknownOutcomeIsNotForgotten(t *testing.T) {
	for name, test := range map[string]struct {
		after string // what happens to the second attempt
		ctx   func(testing.TB) context.Context
		want  error
	}{
		"context ends": {"hang read 1", func(t testing.TB) context.Context { return within(t, soon) }, context.DeadlineExceeded},
		"locked":       {"lock 1", func(t testing.TB) context.Context { return t.Context() }, kv.ErrLocked},
		"retry limit":  {"fault read 1007 9", func(t testing.TB) context.Context { return t.Context() }, kv.ErrTooOld},
	} {
		t.Run(name, func(t *testing.T) {
			db := openFake(t, func(o *Options) { o.RetryLimit = 3 })
			command(t, db, "fault committed 1021 1")
			runs := 0
			_, err := db.Transact(test.ctx(t), func(tr kv.Transaction) error {
				if runs == 1 {
					command(t, db, "%s", test.after)
				}
				return counted(&runs)(tr)
			})
			require.ErrorIs(t, err, kv.ErrCommitUnknown)
			require.ErrorIs(t, err, test.want)
		})
	}
}
