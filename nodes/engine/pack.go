package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/segment"
)

// packTick is how often the packing loop looks at the log while there is something to pack.
const packTick = 200 * time.Millisecond

// packer is the state of the packing loop; only its goroutine uses it.
type packer struct {
	since    time.Time // when the oldest unpacked bytes were noticed; zero when there are none
	reserved int64     // reservations that had been answered at the last tick
}

// gathered counts bytes that became durable, and wakes the packing loop when it has something to do.
func (e *Engine) gathered(bytes int64) {
	total := e.unpacked.Add(bytes)
	e.metrics.UnpackedBytes.Set(float64(total))
	// Below zero when a pack took bytes that were not yet counted: segments are listed before their appends are answered.
	if before := total - bytes; before <= 0 || (before < e.options.PackBytes && total >= e.options.PackBytes) {
		e.pokePacker()
	}
}

// pokePacker makes the packing loop look again.
func (e *Engine) pokePacker() {
	select {
	case e.packNow <- struct{}{}:
	default:
	}
}

// packLoop packs when enough has gathered, when what has gathered is old enough, and when somebody waits for it.
func (e *Engine) packLoop(ctx context.Context) {
	for {
		if !e.awaitPackWork(ctx) {
			return
		}
		segments := e.choose(e.log.Acknowledged())
		if len(segments) == 0 {
			e.packer.since = time.Time{}
			continue
		}
		if err := e.pack(ctx, segments); err != nil {
			if ctx.Err() == nil {
				e.fail(err)
			}
			return
		}
		e.packer.since = time.Now()
	}
}

// awaitPackWork waits until a pack is due; false when ctx ended or the engine failed.
func (e *Engine) awaitPackWork(ctx context.Context) bool {
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for !e.packDue() {
		var tick <-chan time.Time
		if !e.packer.since.IsZero() {
			wait := min(packTick, max(time.Until(e.packer.since.Add(e.options.PackInterval)), time.Millisecond))
			if timer == nil {
				timer = time.NewTimer(wait)
			} else {
				timer.Reset(wait)
			}
			tick = timer.C
		}
		select {
		case <-e.packNow:
		case <-tick:
			if e.backlogFull() {
				return ctx.Err() == nil
			}
		case <-e.failed:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// backlogFull tells whether appends have waited for the log's backlog since the last tick, whatever its bound is: only a pack gives them room.
func (e *Engine) backlogFull() bool {
	answered := e.reserved.Load()
	full := e.reserving.Load() > 0 && answered == e.packer.reserved
	e.packer.reserved = answered
	return full
}

// packDue tells whether to pack now.
func (e *Engine) packDue() bool {
	unpacked := e.unpacked.Load()
	if unpacked <= 0 {
		e.packer.since = time.Time{}
		return false
	}
	if e.packer.since.IsZero() {
		e.packer.since = time.Now()
	}
	return e.closers.Load() > 0 || unpacked >= e.options.PackBytes || time.Since(e.packer.since) >= e.options.PackInterval ||
		e.manySegments()
}

// manySegments tells whether so many segments wait that recovery would take long, or new ones would find no room in the layer.
func (e *Engine) manySegments() bool {
	waiting := e.log.Backlog()
	return waiting.Objects >= e.options.PackSegments || waiting.Segments >= e.options.PackInlineSegments || waiting.InlineBytes >= e.options.PackInlineBytes
}

// maxPackKeys bounds the objects that one pack queues for destruction, which one transaction does.
const maxPackKeys = 1000

// choose takes the segments that one pack covers: from the first live one on, up to PackMaxBytes and maxPackKeys.
func (e *Engine) choose(acknowledged []*wal.Segment) []*wal.Segment {
	var bytes int64
	keys := 0
	for i, s := range acknowledged {
		bytes += s.Bytes
		if s.Stored {
			keys++
		}
		if i > 0 && (bytes > e.options.PackMaxBytes || keys > maxPackKeys) {
			return acknowledged[:i]
		}
	}
	return acknowledged
}

// pack moves what segments hold into data objects. It goes on until that is done: an error is final, or ctx has ended.
//
// Nothing is visible before CommitPack, which does everything at once; a crash before it leaves prepared objects, which expire, and the segments
// as they were. The same segments are always cut into the same index entries, so that a pack that was committed in part can be tried again.
func (e *Engine) pack(ctx context.Context, segments []*wal.Segment) error {
	e.packMu.Lock()
	defer e.packMu.Unlock()
	began := time.Now()
	plan := e.plan(segments)
	for {
		plan.attempts++
		err := e.writePack(ctx, plan)
		if err == nil {
			break
		}
		if !errors.Is(err, layer.ErrNotPrepared) || ctx.Err() != nil {
			return err
		}
		e.logger.Warn("data objects of a pack expired before it was committed, writing them anew", "segments", len(segments), "error", err)
	}
	e.finishPack(plan)
	e.metrics.Packs.Inc()
	e.metrics.PackSeconds.Observe(time.Since(began).Seconds())
	return nil
}

// packPlan is one pack: which batches go into which objects, and what is committed with them.
type packPlan struct {
	first, next int64 // segments [first, next)
	keys        []string
	bytes       int64 // of batches
	attempts    int
	streams     []*streamPack
	objects     []packObject
}

// streamPack is what a pack has of one stream.
type streamPack struct {
	stream    *Stream
	pieces    []packPiece // one for each segment that has the stream, in order
	bytes     int64
	end       int64 // offset after its last record
	seq       int64 // segment of the last piece
	producers []layer.ProducerState
}

// packPiece is what one segment has of one stream. Index entries end only where pieces do: a recoverer that takes the segments one by one then
// meets no entry that it could take in part only.
type packPiece struct {
	entries []segment.Entry
	bytes   int64
}

// packObject is one data object to be written.
type packObject struct {
	entries []segment.Entry
	bytes   int64
}

// plan groups what the segments hold by stream and lays it out in objects.
func (e *Engine) plan(segments []*wal.Segment) *packPlan {
	p := &packPlan{first: segments[0].Seq, next: segments[len(segments)-1].Seq + 1}
	byStream := make(map[int64]*streamPack)
	for _, s := range segments {
		if s.Stored {
			p.keys = append(p.keys, s.Key)
		}
		for _, entry := range s.Entries {
			p.bytes += int64(len(entry.Data))
			sp := byStream[entry.Stream]
			if sp == nil {
				stream := e.stream(entry.Stream)
				if stream == nil {
					continue // forgotten: its table is gone
				}
				sp = &streamPack{stream: stream}
				byStream[entry.Stream] = sp
				p.streams = append(p.streams, sp)
			}
			if entry.Epoch == sp.stream.epoch {
				sp.add(entry, s.Seq)
			}
		}
	}
	e.layOut(p)
	for _, sp := range p.streams {
		sp.producers = sp.stream.packedProducers(sp)
	}
	return p
}

// add adds an entry of segment seq.
func (sp *streamPack) add(entry segment.Entry, seq int64) {
	if len(sp.pieces) == 0 || sp.seq != seq {
		sp.pieces = append(sp.pieces, packPiece{})
		sp.seq = seq
	}
	piece := &sp.pieces[len(sp.pieces)-1]
	piece.entries = append(piece.entries, entry)
	piece.bytes += int64(len(entry.Data))
	sp.bytes += int64(len(entry.Data))
	sp.end = entry.Last + 1
}

// layOut puts large streams into objects of their own, and fills objects with small ones.
func (e *Engine) layOut(p *packPlan) {
	var shared packObject
	flush := func(o *packObject) {
		if len(o.entries) > 0 {
			p.objects = append(p.objects, *o)
		}
		*o = packObject{}
	}
	for _, sp := range p.streams {
		target, alone := &shared, packObject{}
		if sp.bytes >= e.options.PackAloneBytes {
			target = &alone
		} else if shared.bytes+sp.bytes > e.options.PackObjectBytes {
			flush(&shared)
		}
		for _, piece := range sp.pieces {
			if target == &alone && alone.bytes > 0 && alone.bytes+piece.bytes > e.options.PackObjectBytes {
				flush(&alone)
			}
			target.entries = append(target.entries, piece.entries...)
			target.bytes += piece.bytes
		}
		flush(&alone)
	}
	flush(&shared)
}

// finishPack makes the streams read from the objects what was read from memory before, and frees that memory.
func (e *Engine) finishPack(p *packPlan) {
	for _, sp := range p.streams {
		sp.stream.packedTo(sp)
	}
	e.log.Packed(p.next)
	e.metrics.UnpackedBytes.Set(float64(e.unpacked.Add(-p.bytes)))
}

// packedTo moves the packed end, drops what lies below it from the log cache, and wakes who waits for it.
func (s *Stream) packedTo(sp *streamPack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == closed || sp.end <= s.packed {
		return
	}
	n := 0
	for n < len(s.tail) && s.tail[n].last < sp.end {
		n++
	}
	s.tail = append([]tailBatch(nil), s.tail[n:]...) // a new array: the old one would keep the batches
	s.packed = sp.end
	s.packedProducersDone(sp)
	s.wake()
}

// packedProducers gives the rows of the producers that have batches in the pack, as of its end.
func (s *Stream) packedProducers(sp *streamPack) []layer.ProducerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make(map[int64]*layer.ProducerState)
	var order []int64
	for _, piece := range sp.pieces {
		for _, entry := range piece.entries {
			id := entry.Producer.ID
			if id == segment.NoProducer {
				continue
			}
			state := states[id]
			if state == nil {
				p := s.producers[id]
				if p == nil || p.committed == nil {
					continue // the stream was forgotten in the meantime
				}
				copied := *p.committed
				copied.LastTimestamp = p.lastTimestamp
				state = &copied
				states[id] = state
				order = append(order, id)
			}
			state.Epoch, state.Batches = addBatch(state.Epoch, state.Batches, entry)
		}
	}
	rows := make([]layer.ProducerState, len(order))
	for i, id := range order {
		rows[i] = *states[id]
	}
	return rows
}

// packedProducersDone notes that the rows are committed. Call with mu held.
func (s *Stream) packedProducersDone(sp *streamPack) {
	for i := range sp.producers {
		state := &sp.producers[i]
		p := s.producers[state.Producer]
		if p == nil {
			continue
		}
		p.stored = true
		p.committed = state
		if p.last().Last < sp.end {
			p.committed = nil
		}
	}
}

// packError says what a pack was doing.
func packError(p *packPlan, err error) error {
	return fmt.Errorf("pack segments [%d, %d): %w", p.first, p.next, err)
}
