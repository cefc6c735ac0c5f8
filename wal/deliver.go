package wal

import (
	"time"

	"github.com/varvedb/varve/wal/segment"
)

// answer is what one append is told.
type answer struct {
	sub submission
	err error
}

// claim makes the caller the one that delivers, if there is something to deliver and nobody does. mu is held; the caller calls deliver
// after it has let go of mu.
func (l *Log) claim() bool {
	if l.delivering || !l.deliverable() {
		return false
	}
	l.delivering = true
	return true
}

// deliverable tells whether an append can be answered. mu is held.
func (l *Log) deliverable() bool {
	switch {
	case len(l.live) > 0 && l.live[0].landed:
		return true
	case l.ended():
		return len(l.live)+len(l.pending)+len(l.rejected) > 0
	default:
		return len(l.rejected) > 0 && len(l.live)+len(l.pending) == 0
	}
}

// deliver calls done, in order, until there is nothing to say. One goroutine at a time is here.
func (l *Log) deliver() {
	for {
		l.mu.Lock()
		answers := l.answers()
		if len(answers) == 0 {
			l.delivering = false
			if l.idle != nil && l.isIdle() {
				select {
				case <-l.idle:
				default:
					close(l.idle)
				}
			}
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		now := time.Now()
		for _, a := range answers {
			if a.err == nil {
				l.o.Metrics.appends.Observe(now.Sub(a.sub.at).Seconds())
			}
			a.sub.done(a.err)
		}
	}
}

// answers takes what can be answered now: what has landed with everything before it, and, once nothing can land any more, all the rest.
// mu is held.
func (l *Log) answers() []answer {
	var answers []answer
	n := 0
	for ; n < len(l.live) && l.live[n].landed; n++ {
		f := l.live[n]
		l.acked = append(l.acked, f.segment(l.header(f.seq)))
		if !f.inline {
			l.objects++
		}
		for _, s := range f.subs {
			answers = append(answers, answer{sub: s})
		}
		l.live[n] = nil
	}
	l.live = l.live[n:]
	if n > 0 {
		return answers
	}
	err := l.err
	if err == nil {
		err = ErrClosed
	}
	if l.ended() {
		l.lost = l.lost || len(l.live)+len(l.pending) > 0
		for _, f := range l.live {
			for _, s := range f.subs {
				answers = append(answers, answer{s, err})
			}
		}
		for _, s := range l.pending {
			answers = append(answers, answer{s, err})
		}
		l.live, l.pending, l.pendingBytes = nil, nil, 0
	}
	if len(l.live)+len(l.pending) == 0 {
		for _, s := range l.rejected {
			answers = append(answers, answer{s, err})
		}
		l.rejected = nil
	}
	return answers
}

func (f *flight) segment(header segment.Header) *Segment {
	return &Segment{
		Seq: f.seq, Key: f.key, Inline: f.inline, Stored: f.stored, Entries: f.entries, Parts: f.parts, Bytes: f.size,
		header: header, batchBytes: f.bytes,
	}
}
