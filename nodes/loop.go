package nodes

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime/pprof"
	"time"
)

// loop runs one step again and again: after an interval, at once when it is triggered, and after a growing pause when a step failed.
// The goroutine that calls run owns it. Triggers that come while a step runs make one more step.
type loop struct {
	name     string
	interval time.Duration
	jitter   float64 // share of the interval by which it varies, so that nodes do not march in step
	step     func(context.Context) error
	logger   *slog.Logger
	wake     chan struct{} // capacity 1
	idle     bool          // the first step waits for the interval or a trigger
}

// loopRetry is the first pause after a failed step; it doubles up to the interval.
const loopRetry = 100 * time.Millisecond

func newLoop(name string, interval time.Duration, logger *slog.Logger, step func(context.Context) error) *loop {
	return &loop{name: name, interval: interval, jitter: 0.1, step: step, logger: logger, wake: make(chan struct{}, 1)}
}

// trigger asks for a step now.
func (l *loop) trigger() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run ends when ctx does. A failed step is logged once when a row of failures begins, and its end is logged.
func (l *loop) run(ctx context.Context) {
	pprof.Do(ctx, pprof.Labels("loop", l.name), l.loop)
}

func (l *loop) loop(ctx context.Context) {
	if l.idle && !l.pause(ctx, l.next(0)) {
		return
	}
	failures := 0
	for ctx.Err() == nil {
		err := l.step(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && failures == 0:
			l.logger.Warn("background loop failed, it goes on trying", "loop", l.name, "error", err)
			failures++
		case err != nil:
			l.logger.Debug("background loop failed again", "loop", l.name, "failures", failures+1, "error", err)
			failures++
		case failures > 0:
			l.logger.Info("background loop works again", "loop", l.name, "failures", failures)
			failures = 0
		}
		if !l.pause(ctx, l.next(failures)) {
			return
		}
	}
}

// next is how long to wait after so many failures in a row.
func (l *loop) next(failures int) time.Duration {
	wait := l.interval
	if failures > 0 {
		wait = min(wait, loopRetry<<min(failures-1, 20))
	}
	if l.jitter > 0 {
		wait += time.Duration((rand.Float64()*2 - 1) * l.jitter * float64(wait))
	}
	return wait
}

// pause waits for the time or a trigger; false when ctx ended.
func (l *loop) pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-l.wake:
		return true
	case <-timer.C:
		return true
	}
}
