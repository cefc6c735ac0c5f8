package wal

import (
	"time"

	"github.com/varvedb/varve/wal/segment"
)

// cut makes flights of what is pending: at once when nothing is in flight, otherwise when a segment's worth has gathered, when another
// flight has just landed, or when the oldest has waited long enough. mu is held.
func (l *Log) cut(landed bool) {
	for l.mayCut(landed) {
		f := l.take()
		l.inflight++
		l.spawn(func() { l.write(f) })
		landed = false
	}
	l.observe()
	l.setTimer()
}

func (l *Log) mayCut(landed bool) bool {
	if !l.room() || len(l.pending) == 0 {
		return false
	}
	if l.closing || l.pendingBytes >= l.segmentBytes() {
		return true
	}
	waited := time.Since(l.pending[0].at)
	if linger := l.linger(); linger > 0 {
		return waited >= linger
	}
	return l.inflight == 0 || landed || (l.o.Gather > 0 && waited >= l.o.Gather)
}

// While packing does not keep up, because the layer is away, say, appends gather ever longer once lingerFrom segments lie in the store, up to maxLinger at
// twice as many: each of them is one more object that a recoverer reads, and larger ones make the numbers last.
const (
	lingerFrom = 1024
	maxLinger  = time.Second
)

// linger is how long appends gather now; 0: no longer than usual. mu is held.
func (l *Log) linger() time.Duration {
	over := min(l.objects-lingerFrom, lingerFrom)
	if over <= 0 {
		return 0
	}
	return maxLinger * time.Duration(over) / lingerFrom
}

// room tells whether another flight may begin. A number is given out only below the first live one plus the backlog bound. mu is held.
func (l *Log) room() bool {
	return l.ctx != nil && !l.ended() && l.inflight < l.o.Inflight && l.next < l.firstLive+l.o.BacklogSegments
}

// segmentBytes is how much is gathered: less while the store fails, so that the layer can take it. mu is held.
func (l *Log) segmentBytes() int64 {
	if l.storeFailing() && l.inlineBytes < l.o.InlineBudget {
		return int64(min(l.o.SegmentBytes, l.o.InlineFallback/2))
	}
	return int64(l.o.SegmentBytes)
}

// take makes the next flight of the oldest appends. mu is held.
func (l *Log) take() *flight {
	limit := l.segmentBytes()
	n, entries, bytes := 0, 0, int64(0)
	for n < len(l.pending) && (n == 0 || bytes+l.pending[n].bytes <= limit) {
		bytes += l.pending[n].bytes
		entries += len(l.pending[n].entries)
		n++
	}
	f := &flight{seq: l.next, key: segmentKey(l.prefix, l.next), subs: l.pending[:n:n], bytes: bytes}
	if n == 1 {
		f.entries = f.subs[0].entries
	} else {
		f.entries = make([]segment.Entry, 0, entries)
		for _, s := range f.subs {
			f.entries = append(f.entries, s.entries...)
		}
	}
	l.pending = l.pending[n:]
	if len(l.pending) == 0 {
		l.pending = nil
	}
	l.pendingBytes -= bytes
	l.next++
	l.live = append(l.live, f)
	return f
}

// setTimer makes sure that what is pending is cut in time though nothing else happens. mu is held.
func (l *Log) setTimer() {
	gather := max(l.o.Gather, l.linger())
	if l.timerSet || gather <= 0 || len(l.pending) == 0 || !l.room() {
		return
	}
	l.timerSet = true
	wait := max(gather-time.Since(l.pending[0].at), time.Microsecond)
	if l.timer != nil {
		l.timer.Reset(wait)
		return
	}
	l.timer = time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.timerSet = false
		l.cut(false)
	})
}
