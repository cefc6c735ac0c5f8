package wal

import (
	"context"
	"time"
)

// waiter is a call of Reserve that waits.
type waiter struct {
	bytes int64
	ready chan struct{}
}

// rewake is how soon those that still wait are looked at again after others were let through, which may not append after all.
const rewake = 5 * time.Millisecond

// Reserve waits until n more bytes fit the backlog. It is called before an append, while no lock is held that packing needs. It keeps
// nothing back: nothing has to be returned when the append is not made, and the bound is exceeded by what is let through at one moment.
// The error is that of ctx, or an ErrFenced, ErrStopped or ErrClosed.
func (l *Log) Reserve(ctx context.Context, n int) error {
	l.mu.Lock()
	if err := l.refusal(); err != nil {
		l.mu.Unlock()
		return err
	}
	if len(l.waiters) == 0 && l.fits(int64(n), 0) {
		l.mu.Unlock()
		return nil
	}
	w := &waiter{bytes: int64(n), ready: make(chan struct{})}
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()

	select {
	case <-w.ready:
	case <-ctx.Done():
		l.forget(w)
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal()
}

// refusal is why appends are refused. mu is held.
func (l *Log) refusal() error {
	switch {
	case l.err != nil:
		return l.err
	case l.stopped || l.closing:
		return ErrClosed
	}
	return nil
}

// fits tells whether an append of n bytes fits after others of granted bytes. One that is larger than the bound fits an empty backlog. mu is held.
func (l *Log) fits(n, granted int64) bool {
	waiting := int64(0)
	if len(l.pending) > 0 {
		waiting = 1
	}
	return l.next+waiting < l.firstLive+l.o.BacklogSegments && (l.backlogBytes+granted == 0 || l.backlogBytes+granted+n <= l.o.BacklogBytes)
}

// wake lets through those that fit, the longest waiting first. mu is held.
func (l *Log) wake() {
	granted := int64(0)
	n := 0
	for n < len(l.waiters) && l.fits(l.waiters[n].bytes, granted) {
		granted += l.waiters[n].bytes
		close(l.waiters[n].ready)
		n++
	}
	l.waiters = l.waiters[n:]
	if len(l.waiters) == 0 || n == 0 || l.waking {
		return
	}
	l.waking = true
	time.AfterFunc(rewake, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waking = false
		l.wake()
	})
}

// wakeAll lets everybody through, to be refused. mu is held.
func (l *Log) wakeAll() {
	for _, w := range l.waiters {
		close(w.ready)
	}
	l.waiters = nil
}

// forget takes away a waiter that has given up. The place that it had in line goes to the next.
func (l *Log) forget(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.waiters {
		if l.waiters[i] == w {
			l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
			break
		}
	}
	l.wake()
}
