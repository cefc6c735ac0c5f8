package engine

import (
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/segment"
)

// packPlan is one pack: what is adopted, which batches go into which data objects, and what is committed with them.
type packPlan struct {
	first, next int64    // segments [first, next) cease to be live; none when they are equal
	keys        []string // of their objects: destroyed unless adopted
	bytes       int64    // of their batches
	began       time.Time
	attempts    int
	hurried     bool // somebody waits for it to close a stream
	streams     []*streamPack
	objects     []packObject // data objects to be written

	adopted      []adoptedSegment
	entries      []layer.ObjectEntry // that point into adopted segments
	adoptedBytes int64               // of batches
	copiedBytes  int64               // of batches
}

// packObject is one data object to be written.
type packObject struct {
	entries []segment.Entry
	bytes   int64
}

// choose takes segments from the first live one on, up to maxBytes and, of those that are objects, what the layer takes in one pack.
func choose(acknowledged []*wal.Segment, maxBytes int64) []*wal.Segment {
	var bytes int64
	keys := 0
	for i, s := range acknowledged {
		bytes += s.Bytes
		if s.Stored {
			keys++
		}
		if i > 0 && (bytes > maxBytes || keys > layer.MaxPackSegments) {
			return acknowledged[:i]
		}
	}
	return acknowledged
}

// nextPack decides what is packed next; nil when the log holds nothing. Call with commitMu held.
func (e *Engine) nextPack() *packPlan {
	hurry := len(e.waiters.closing(true)) > 0
	acknowledged := e.log.Acknowledged() // after that, so that it has all of what they wait for
	if len(acknowledged) == 0 {
		return nil
	}
	return e.plan(choose(acknowledged, e.options.PackMaxBytes), hurry)
}

// plan is a pack of all that segments hold.
func (e *Engine) plan(segments []*wal.Segment, hurry bool) *packPlan {
	p := e.group(segments, func(*Stream) bool { return true })
	p.next = segments[len(segments)-1].Seq + 1
	for _, s := range segments {
		if s.Stored {
			p.keys = append(p.keys, s.Key)
		}
		for i := range s.Entries {
			p.bytes += int64(len(s.Entries[i].Data))
		}
	}
	p.hurried = hurry
	p.decide(e.options)
	e.finishPlan(p)
	return p
}

// group gathers by stream what segments hold and is not packed.
func (e *Engine) group(segments []*wal.Segment, wanted func(*Stream) bool) *packPlan {
	p := &packPlan{began: time.Now(), first: segments[0].Seq, next: segments[0].Seq}
	byStream := make(map[int64]*streamPack)
	for _, s := range segments {
		for _, entry := range s.Entries {
			sp, known := byStream[entry.Stream]
			if !known {
				if stream := e.stream(entry.Stream); stream != nil && wanted(stream) { // nil: it was closed, or its table is gone
					sp = &streamPack{stream: stream, from: stream.packedEnd()}
				}
				byStream[entry.Stream] = sp
			}
			if sp == nil || entry.Epoch != sp.stream.epoch || entry.Base < sp.from {
				continue
			}
			if len(sp.pieces) == 0 {
				p.streams = append(p.streams, sp)
			}
			sp.add(entry, s)
		}
	}
	return p
}

// finishPlan makes the index entries of what is adopted, lays the rest out in data objects, and takes the producers' states.
func (e *Engine) finishPlan(p *packPlan) {
	p.adopt()
	e.layOut(p)
	for _, sp := range p.streams {
		sp.producers = sp.stream.packedProducers(sp)
	}
}

// layOut puts what is copied of large streams into objects of their own, and fills objects with small ones.
func (e *Engine) layOut(p *packPlan) {
	var shared packObject
	flush := func(o *packObject) {
		if len(o.entries) > 0 {
			p.objects = append(p.objects, *o)
		}
		*o = packObject{}
	}
	for _, sp := range p.streams {
		bytes := sp.copied()
		target, alone := &shared, packObject{}
		if bytes >= e.options.PackAloneBytes {
			target = &alone
		} else if shared.bytes+bytes > e.options.PackObjectBytes {
			flush(&shared)
		}
		for i := range sp.pieces {
			piece := &sp.pieces[i]
			if sp.adopts(piece) {
				continue
			}
			if target == &alone && alone.bytes > 0 && alone.bytes+piece.bytes > e.options.PackObjectBytes {
				flush(&alone)
			}
			target.entries = append(target.entries, piece.entries...)
			target.bytes += piece.bytes
		}
		flush(&alone)
		p.copiedBytes += bytes
	}
	flush(&shared)
}
