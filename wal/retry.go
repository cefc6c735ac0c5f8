package wal

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

// askLayer runs one step at the layer until it is answered.
func (r *recoverer) askLayer(ctx context.Context, what string, step func(context.Context) error) error {
	return r.ask(ctx, what, step, func(err error) bool {
		return !kv.Retryable(err) && !errors.Is(err, kv.ErrLocked)
	})
}

// askStore runs one step at the object store until it is answered.
func (r *recoverer) askStore(ctx context.Context, what string, step func(context.Context) error) error {
	return r.ask(ctx, what, step, func(err error) bool {
		for _, answer := range []error{objects.ErrExists, objects.ErrNotFound, objects.ErrRange, objects.ErrKey, objects.ErrUnsupported, segment.ErrCorrupt} {
			if errors.Is(err, answer) {
				return true
			}
		}
		return false
	})
}

// ask tries a step again, each attempt within its own time, until an error is what the other side has to say rather than its failure to
// say it: a store or a database that is away comes back, and a recovery that gave up would leave streams without a leader.
func (r *recoverer) ask(ctx context.Context, what string, step func(context.Context) error, isAnswer func(error) bool) error {
	pause := newPause(r.o.RetryMin, r.o.RetryMax)
	for {
		attempt, cancel := context.WithTimeout(ctx, r.o.Timeout)
		err := step(attempt)
		late := attempt.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || (isAnswer(err) && !late) {
			return err
		}
		r.log.Warn("recovery waits", "step", what, "error", err)
		if !sleep(ctx, pause.NextBackOff()) {
			return err
		}
	}
}

// newPause doubles from least to most, for ever.
func newPause(least, most time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = least, most, 2
	b.Reset()
	return b
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
