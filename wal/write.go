package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

// maxSeal bounds the bytes of a seal: the longest cluster name and the rest.
const maxSeal = 4096

var errPutAgain = errors.New("the store refused the object as one that exists, and has none")

// write brings one flight to its place, with the same bytes at every attempt and in either place, for as long as it takes.
func (l *Log) write(f *flight) {
	f.data, f.parts = segment.Encode(l.header(f.seq), f.entries, segment.Options{})
	inline := l.place(f)
	l.acknowledgeEarly(f)
	pause := l.pause()
	for attempt := 1; ; attempt++ {
		err := l.attempt(f, inline)
		switch {
		case err == nil && inline:
			l.land(f)
			return
		case err == nil:
			l.verify(f)
			return
		case final(err):
			l.fail(err)
			return
		case l.ctx.Err() != nil:
			return
		}
		operation := "put"
		if inline {
			operation = "inline"
		}
		l.o.Metrics.retries.WithLabelValues(operation).Inc()
		l.o.Logger.Warn("segment is not durable yet", "node", l.o.Node, "segment", f.seq, "operation", operation, "attempt", attempt, "error", err)
		other := l.replace(f, inline, err)
		if (other == inline || attempt > 1) && !errors.Is(err, errPutAgain) {
			if !sleep(l.ctx, pause.NextBackOff()) {
				return
			}
		}
		inline = other
	}
}

// final tells whether an error ends the log.
func final(err error) bool { return errors.Is(err, ErrFenced) || errors.Is(err, ErrStopped) }

func (l *Log) attempt(f *flight, inline bool) error {
	if inline {
		return l.putInline(f)
	}
	return l.putObject(f)
}

// place chooses where a flight is tried first.
func (l *Log) place(f *flight) (inline bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.size = int64(len(f.data))
	limit := l.o.InlineMax
	if l.storeFailing() {
		limit = l.o.InlineFallback
	} else if l.layerDown {
		return false
	}
	return l.charge(f, limit)
}

// replace chooses where a flight is tried next, after it failed where it was.
func (l *Log) replace(f *flight, inline bool, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !inline {
		if errors.Is(err, errPutAgain) {
			return false
		}
		l.storeRetryAt = time.Now().Add(l.o.RetryMax)
		return !f.noInline && l.charge(f, l.o.InlineFallback)
	}
	if f.inline {
		f.inline = false
		l.inlineBytes -= f.size
	}
	switch {
	case errors.Is(err, kv.ErrTransactionTooLarge) || errors.Is(err, layer.ErrInvalid):
		f.noInline = true
	case unreachable(err):
		l.layerFailed()
	}
	return false
}

// charge takes the flight's bytes from the inline budget, if they fit. mu is held.
func (l *Log) charge(f *flight, limit int) bool {
	if f.size > int64(limit) || l.inlineBytes+f.size > l.o.InlineBudget {
		return false
	}
	l.inlineBytes += f.size
	f.inline = true
	return true
}

// storeFailing tells whether the store failed so recently that it is not asked for what the layer can take. mu is held.
func (l *Log) storeFailing() bool {
	return !l.storeRetryAt.IsZero() && time.Now().Before(l.storeRetryAt)
}

// putInline is rule 2: one transaction that checks the node row and writes the bytes.
func (l *Log) putInline(f *flight) error {
	ctx, cancel := context.WithTimeout(l.ctx, l.o.InlineTimeout)
	defer cancel()
	began := time.Now()
	err := l.o.Layer.PutInline(ctx, l.o.Node, f.seq, f.data)
	if err == nil {
		l.o.Metrics.inlineSeconds.Observe(time.Since(began).Seconds())
		return nil
	}
	return l.fenced(f.seq, err)
}

// fenced makes a FencedError of an answer that says so.
func (l *Log) fenced(seq int64, err error) error {
	// A row that is missing is that of a database which forgot this life, so that nobody would recover it.
	for _, fence := range []error{layer.ErrFenced, layer.ErrReplaced, layer.ErrWALSealed, layer.ErrNodeNotFound} {
		if errors.Is(err, fence) {
			return &FencedError{Node: l.o.Node, Seq: seq, Err: err}
		}
	}
	return err
}

// unreachable tells whether the layer did not answer, as opposed to an answer that is an error.
func unreachable(err error) bool {
	return kv.Retryable(err) || errors.Is(err, context.DeadlineExceeded)
}

// putObject is rule 3. In mode layer there are no seals, and a put over the own bytes does no harm.
func (l *Log) putObject(f *flight) error {
	l.mu.Lock()
	f.stored = true
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.ctx, l.o.PutTimeout)
	defer cancel()
	began := time.Now()
	var err error
	if l.o.Row.Mode == layer.FenceLayer {
		err = l.o.Store.Put(ctx, f.key, f.data)
	} else {
		err = l.o.Store.PutIfAbsent(ctx, f.key, f.data)
	}
	if errors.Is(err, objects.ErrExists) {
		err = l.readBack(ctx, f)
	}
	if err != nil {
		return err
	}
	l.o.Metrics.putSeconds.Observe(time.Since(began).Seconds())
	l.mu.Lock()
	l.storeRetryAt = time.Time{}
	l.mu.Unlock()
	return nil
}

// readBack finds out why a put was refused: nil when an earlier attempt had succeeded. Before it calls an object foreign, which ends the
// log, it reads again, in case the bytes were damaged on their way.
func (l *Log) readBack(ctx context.Context, f *flight) (err error) {
	for range 3 {
		if err = l.readBackOnce(ctx, f); !errors.Is(err, ErrStopped) {
			return err
		}
	}
	return err
}

func (l *Log) readBackOnce(ctx context.Context, f *flight) error {
	body, err := l.o.Store.GetAll(ctx, f.key, int64(max(len(f.data), maxSeal)))
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return errPutAgain
	case errors.Is(err, objects.ErrRange):
		return &ForeignError{Key: f.key, Seq: f.seq, Err: fmt.Errorf("it is larger than the %d bytes of the segment", len(f.data))}
	case err != nil:
		return fmt.Errorf("read back the object that a put was refused for: %w", err)
	case bytes.Equal(body, f.data):
		return nil
	}
	o, _, err := segment.Decode(body)
	if err != nil {
		return &ForeignError{Key: f.key, Seq: f.seq, Err: segment.Named(err, f.key)}
	}
	seal := l.header(f.seq)
	seal.Kind = segment.KindSeal
	if o.Header != seal {
		return &ForeignError{Key: f.key, Seq: f.seq, Err: fmt.Errorf("it is %s", o.Header)}
	}
	return &FencedError{Node: l.o.Node, Seq: f.seq, Err: fmt.Errorf("a seal stands at %s", f.key)}
}

// land makes flights durable, begins the next ones and delivers what has become deliverable.
func (l *Log) land(flights ...*flight) {
	l.mu.Lock()
	for _, f := range flights {
		f.landed = true
		f.data = nil
		l.inflight--
		l.o.Metrics.landed(f)
	}
	l.cut(true)
	deliver := l.claim()
	l.mu.Unlock()
	if deliver {
		l.deliver()
	}
}

func (l *Log) pause() *backoff.ExponentialBackOff { return newPause(l.o.RetryMin, l.o.RetryMax) }
