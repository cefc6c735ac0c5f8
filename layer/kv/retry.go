package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff says how long Retry waits between runs: a random time between half of a step and the step, which doubles from First up to Max.
type Backoff struct {
	First time.Duration
	Max   time.Duration
}

// Wait is the pause after the given failed run; runs count from 1.
func (b Backoff) Wait(run int) time.Duration {
	step := b.First
	for range run - 1 {
		if step >= b.Max {
			break
		}
		step *= 2
	}
	step = min(step, b.Max)
	if step <= 0 {
		return 0
	}
	return step/2 + rand.N(step/2+1)
}

// Retry runs attempt until it succeeds, fails with an error that is not Retryable, or ctx ends. It is the loop behind Transact and
// ReadTransact. When ctx ends, the error wraps that of ctx and the last one of attempt. An earlier attempt that ended in ErrCommitUnknown may
// have been committed, so once there was one, the error wraps ErrCommitUnknown when ctx ends or the engine is closed. Other errors of
// attempt come from the caller's function, which knows what they mean, and are returned as they are.
func Retry(ctx context.Context, backoff Backoff, attempt func() error) error {
	var unknown error
	for run := 1; ; run++ {
		if err := ctx.Err(); err != nil {
			return ended(err, unknown, nil)
		}
		err := attempt()
		if err == nil {
			return nil
		}
		if !Retryable(err) {
			if unknown != nil && (errors.Is(err, ErrClosed) || ctx.Err() != nil && errors.Is(err, ctx.Err())) {
				return ended(err, unknown, nil)
			}
			return err
		}
		if errors.Is(err, ErrCommitUnknown) {
			unknown = err
		}
		if !sleep(ctx, backoff.Wait(run)) {
			return ended(ctx.Err(), unknown, err)
		}
	}
}

// ended joins what a caller may want to branch on: why it was given up, that a commit may have happened, and the last failure.
func ended(cause, unknown, last error) error {
	switch {
	case unknown != nil:
		return fmt.Errorf("transaction given up: %w: %w", unknown, cause)
	case last != nil:
		return fmt.Errorf("transaction given up: %w: %w", cause, last)
	}
	return fmt.Errorf("transaction given up: %w", cause)
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
