package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// errAttemptTimeout ends an attempt that took too long.
var errAttemptTimeout = errors.New("no answer in time")

// attempt is one try of an operation.
type attempt struct {
	ctx    context.Context //nolint:containedctx // it lives as long as the attempt
	timer  *time.Timer
	limit  time.Duration
	cancel context.CancelCauseFunc
	store  *Store
}

// expect gives the attempt time for a body of the size, from now on.
func (a *attempt) expect(size int64) {
	a.limit = a.store.options.AttemptTimeout + time.Duration(float64(size)/float64(a.store.options.MinRate)*float64(time.Second))
	a.timer.Reset(a.limit)
}

// operation names what is done, for errors and observers.
type operation struct {
	name string // objects.OpPut and the others
	key  string
	size int64 // bytes that are sent
}

// do tries until it succeeds, fails for good, has no attempts left, or the context ends. call must be safe to repeat.
func (s *Store) do(ctx context.Context, op operation, attempts int, call func(a *attempt) error) error {
	for n := 1; ; n++ {
		err := s.try(ctx, op, call)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return s.fail(op, n, ended(ctx, err))
		}
		if !retryable(err) || n >= attempts {
			return s.fail(op, n, err)
		}
		s.options.OnRetry(op.name, err)
		s.options.Logger.DebugContext(ctx, "object store attempt failed", slog.String("op", op.name), slog.String("key", op.key),
			slog.Int("attempt", n), slog.Any("error", err))
		if pause(ctx, s.backoff(n)) != nil {
			return s.fail(op, n, ended(ctx, err))
		}
	}
}

func (s *Store) try(ctx context.Context, op operation, call func(a *attempt) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a := &attempt{store: s, timer: time.NewTimer(time.Hour)}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	defer a.cancel(nil)
	a.timer.Stop()
	a.timer = time.AfterFunc(time.Hour, func() { a.cancel(errAttemptTimeout) })
	defer a.timer.Stop()
	a.expect(op.size)
	err := call(a)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(a.ctx), errAttemptTimeout) {
		// Not err, which says that its context was cancelled: the caller's was not.
		return &failure{text: fmt.Sprintf("%v (%s)", errAttemptTimeout, a.limit), cause: errAttemptTimeout, retry: true}
	}
	return summarize(err)
}

// ended is the error of a context that ended, with what the last attempt met.
func ended(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if errors.Is(last, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w; last attempt: %w", err, last)
}

// backoff is the pause after the nth attempt: random in its whole range, so that many clients do not come back together.
func (s *Store) backoff(n int) time.Duration {
	limit := s.options.BackoffFirst << min(n-1, 20)
	return rand.N(min(limit, s.options.BackoffMax) + 1) //nolint:gosec // no secret
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// fail is the error of an operation, for the caller.
func (s *Store) fail(op operation, attempts int, err error) error {
	if attempts > 1 {
		return fmt.Errorf("%s %q in %s: attempt %d: %w", op.name, op.key, s, attempts, err)
	}
	return fmt.Errorf("%s %q in %s: %w", op.name, op.key, s, err)
}
