package wal

import (
	"context"
	"time"

	"github.com/varvedb/varve/layer"
)

// verify is rule 4 for a flight whose put was answered: in modes both and layer, a read of the node row that begins now must see it
// unfenced. One read serves all flights that were put before it began; while it runs, others gather for the next.
func (l *Log) verify(f *flight) {
	if l.o.Row.Mode == layer.FenceStore {
		l.land(f)
		return
	}
	l.mu.Lock()
	l.toVerify = append(l.toVerify, f)
	if l.verifying {
		l.mu.Unlock()
		return
	}
	l.verifying = true
	l.mu.Unlock()
	l.verifyAll()
}

// verifyAll verifies until nothing waits for it. One goroutine at a time is here.
func (l *Log) verifyAll() {
	pause := l.pause()
	for {
		l.mu.Lock()
		put := l.toVerify
		l.toVerify = nil
		if len(put) == 0 {
			l.verifying = false
			l.mu.Unlock()
			return
		}
		skip := l.layerDown && l.o.Row.Mode == layer.FenceBoth
		l.mu.Unlock()

		if !skip {
			err := l.readNode(put[0].seq)
			switch {
			case err == nil:
				pause.Reset()
				l.land(put...)
				continue
			case final(err):
				l.fail(err)
				return
			case l.ctx.Err() != nil:
				return
			}
			l.o.Metrics.retries.WithLabelValues("verify").Inc()
			l.o.Logger.Warn("node row cannot be verified", "node", l.o.Node, "mode", l.o.Row.Mode, "segment", put[0].seq, "error", err)
			skip = l.o.Row.Mode == layer.FenceBoth && unreachable(err)
			if unreachable(err) {
				l.mu.Lock()
				l.layerFailed()
				l.mu.Unlock()
			}
		}
		if skip {
			// The conditional put fences by itself: no recoverer has put a seal there, so every recoverer will take the segment.
			l.o.Metrics.skipped.Add(float64(len(put)))
			l.land(put...)
			continue
		}
		l.mu.Lock()
		l.toVerify = append(put, l.toVerify...)
		l.mu.Unlock()
		if !sleep(l.ctx, pause.NextBackOff()) {
			return
		}
	}
}

// readNode is one fresh read of the node row.
func (l *Log) readNode(seq int64) error {
	ctx, cancel := context.WithTimeout(l.ctx, l.o.VerifyTimeout)
	defer cancel()
	began := time.Now()
	if err := l.o.Layer.VerifyNode(ctx, l.o.Node); err != nil {
		return l.fenced(seq, err)
	}
	l.o.Metrics.verifySeconds.Observe(time.Since(began).Seconds())
	return nil
}

// layerFailed notes that the layer cannot be reached and begins to look for its return. mu is held.
func (l *Log) layerFailed() {
	if l.layerDown || l.ended() {
		return
	}
	l.layerDown = true
	l.spawn(l.probe)
}

// probe reads the node row until the layer answers, so that appends need not wait for it to find out. It also learns of a fence.
func (l *Log) probe() {
	pause := l.pause()
	for sleep(l.ctx, pause.NextBackOff()) {
		l.mu.Lock()
		seq := l.next
		l.mu.Unlock()
		err := l.readNode(seq)
		if final(err) {
			l.fail(err)
			return
		}
		if err == nil || !unreachable(err) {
			l.mu.Lock()
			l.layerDown = false
			l.mu.Unlock()
			return
		}
	}
}
