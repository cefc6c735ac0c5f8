package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/pprof"
	"time"
)

// run starts a goroutine that Stop waits for; false when the engine does not run.
func (e *Engine) run(name string, fn func(context.Context)) bool {
	e.spawnMu.Lock()
	defer e.spawnMu.Unlock()
	if e.stopping {
		return false
	}
	e.running.Go(func() {
		pprof.Do(e.life, pprof.Labels("engine", name), fn)
	})
	return true
}

// every runs step after each interval, give or take a tenth, until ctx ends. Failures are logged; the next interval tries again.
func (e *Engine) every(ctx context.Context, name string, interval time.Duration, step func(context.Context) error) {
	for {
		if !pause(ctx, jitter(interval)) {
			return
		}
		if err := step(ctx); err != nil && ctx.Err() == nil {
			if terminal(err) {
				e.fail(err)
				return
			}
			e.logger.Warn("background step failed, it is tried again", "step", name, "error", err)
		}
	}
}

func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

// pause waits; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retry runs step until it succeeds, fails for good (final) or ctx ends, with growing pauses.
func (e *Engine) retry(ctx context.Context, what string, final func(error) bool, step func(context.Context) error) error {
	wait := e.options.RetryMin
	for tries := 1; ; tries++ {
		err := step(ctx)
		if err == nil || terminal(err) || final(err) {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(errStopped, err)
		}
		if tries == 1 || tries%20 == 0 {
			e.logger.Warn("storage failed, trying again", "step", what, "tries", tries, "error", err)
		}
		if !pause(ctx, jitter(wait)) {
			return errors.Join(errStopped, err)
		}
		wait = min(2*wait, e.options.RetryMax)
	}
}
