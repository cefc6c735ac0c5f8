package layer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Pack is what a node commits when it has packed segments [FirstLive, Next) of its log into data objects, or adopts what a stream that it
// closes has in its segments (then Next may equal FirstLive, which leaves the log as it is).
type Pack struct {
	Node            NodeRef
	FirstLive, Next int64
	// Objects that Entries point into, with their Size and Kind: data objects must be prepared, adopted ones are segments of
	// this log at or after FirstLive.
	Objects   []ObjectMeta
	Entries   []ObjectEntry
	Producers []ProducerState // of streams in Entries, as of the end of the pack; merged into what the rows know
	Segments  []string        // keys of all segments in [FirstLive, Next) that are objects, up to MaxPackSegments: destroyed unless adopted
	At        time.Time
}

// MaxPackSegments bounds the segments that cease to be live at once: that must be one transaction, which moves the first live number.
const MaxPackSegments = 1000

// CommitPack takes a pack in: index entries and producer states in, references counted, first live number to Next, inline rows below it cleared, Segments queued
// for destruction.
//
// Conditional on the node being alive, the log not being sealed, and FirstLive (ErrWALMoved). Per stream: entries at or below the durable end are in
// the index already and are skipped, with the producer states that came with them; the first entry beyond must begin exactly there (ErrGap, ErrStraddles). Entries of streams
// that are gone or being deleted are dropped; entries beyond the durable end of a stream that the node has not open are refused (ErrStaleStream). Data objects
// must be prepared (ErrNotPrepared), and are so no more afterwards; those that got no reference are queued for destruction.
//
// A pack too large for one transaction is committed in parts, each under the same conditions, the last of which moves the first live
// number. A pack that failed may have been committed in part: it must be repeated as it is until it is done. A pack that is done is done: FirstLive at Next
// is success.
func (s *Store) CommitPack(ctx context.Context, p Pack) error {
	a := advance{
		log: p.Node, from: p.FirstLive, next: p.Next, objects: p.Objects, entries: p.Entries, producers: p.Producers,
		segments: p.Segments, strict: true, at: p.At,
		command: "commit pack", reason: "packed", by: p.Node,
		allowed: func(t *tx) func() error { return t.node(p.Node).alive },
	}
	return s.advance(ctx, a)
}

// advance moves the index of streams, and with it the first live number of a log, from one segment to another.
type advance struct {
	log        NodeRef
	from, next int64
	objects    []ObjectMeta
	entries    []ObjectEntry
	producers  []ProducerState
	segments   []string // objects that cease to be live
	strict     bool     // refuse entries beyond the durable end of streams that log has not open; otherwise drop them
	at         time.Time
	command    string
	reason     string
	by         fmt.Stringer
	// allowed starts the reads of who may do it, and gives what waits for them.
	allowed func(*tx) func() error
}

var errAlreadyDone = errors.New("already done")

func (s *Store) advance(ctx context.Context, a advance) error {
	if err := a.validate(); err != nil {
		return fmt.Errorf("layer: %s by %s: %w", a.command, a.by, err)
	}
	for _, part := range a.split(s.bounds.parts, len(s.prefix)) {
		err := s.transact(ctx, a.command, a.by, func(t *tx) error { return t.advance(a, part) })
		if errors.Is(err, errAlreadyDone) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a advance) validate() error {
	if a.from < FirstSegment || a.next < a.from {
		return invalid("segments [%d, %d)", a.from, a.next)
	}
	known := make(map[string]bool, len(a.objects))
	for _, o := range a.objects {
		if err := o.validate(); err != nil {
			return err
		}
		known[o.Object] = true
	}
	streams := map[int64]bool{}
	for _, e := range a.entries {
		if err := e.validate(); err != nil {
			return err
		}
		if !known[e.Object] {
			return invalid("entry [%d, %d) of stream %d is in object %q, which is not listed", e.Base, e.End, e.Stream, e.Object)
		}
		streams[e.Stream] = true
	}
	for _, p := range a.producers {
		if err := p.validate(); err != nil {
			return err
		}
		if !streams[p.Stream] {
			return invalid("producer %d of stream %d, which has no entry", p.Producer, p.Stream)
		}
	}
	if len(a.segments) > MaxPackSegments {
		return invalid("%d segments, at most %d cease to be live at once", len(a.segments), MaxPackSegments)
	}
	for _, segment := range a.segments {
		if segment == "" || len(segment) > MaxObjectKey {
			return invalid("segment key of %d bytes", len(segment))
		}
	}
	return nil
}

// advance is one part's decision.
func (t *tx) advance(a advance, part advancePart) error {
	allowed, log, refs := a.allowed(t), t.wal(a.log), t.references()
	reads := make([]partRead, len(part.streams))
	for i, p := range part.streams {
		reads[i] = t.readPart(p, refs)
	}
	for _, object := range part.settle {
		refs.load(object)
	}
	if part.last {
		refs.loadSegments(a.segments)
	}
	if err := allowed(); err != nil {
		return err
	}
	wal, err := log.get()
	if err != nil {
		return err
	}
	if err := a.conditional(wal); err != nil {
		return err
	}
	if err := refs.wait(); err != nil {
		return err
	}
	taken := map[string]int64{}
	for _, r := range reads {
		if err := t.takePart(a, r, taken); err != nil {
			return err
		}
	}
	for _, o := range a.objects {
		if n := taken[o.Object]; n > 0 {
			if err := refs.add(o, n, o.Kind == AdoptedSegment, a.at); err != nil {
				return err
			}
		}
	}
	for _, object := range part.settle {
		refs.settle(object)
	}
	if part.last {
		t.moveFirstLive(a, wal, refs)
	}
	return refs.flush(a.reason, a.at)
}

func (a advance) conditional(wal WALRow) error {
	switch {
	case a.next > a.from && wal.FirstLive == a.next:
		return errAlreadyDone // only who may move it did, and only to here by this work or the same
	case wal.SealedAt != nil:
		return fmt.Errorf("%w: of %s at %d", ErrWALSealed, a.log, *wal.SealedAt)
	case wal.FirstLive != a.from:
		return fmt.Errorf("%w: of %s: wanted %d, found %d", ErrWALMoved, a.log, a.from, wal.FirstLive)
	}
	return nil
}

// moveFirstLive ends the work: the segments are live no more.
func (t *tx) moveFirstLive(a advance, wal WALRow, refs *references) {
	if a.next == a.from {
		return
	}
	for _, segment := range a.segments {
		refs.pass(segment)
	}
	wal.FirstLive = a.next
	t.setWAL(wal)
	begin, _ := t.s.span(spaceInline, a.log.ID, a.log.Epoch)
	t.ClearRange(begin, t.s.key(spaceInline, a.log.ID, a.log.Epoch, a.next))
}

// partRead is the rows that decide over a part of a stream's work.
type partRead struct {
	streamPart
	row       streamRead
	last      lastRead
	producers []future[ProducerState]
}

func (t *tx) readPart(p streamPart, refs *references) partRead {
	r := partRead{streamPart: p, row: t.stream(p.stream), last: t.lastEntry(p.stream)}
	for _, state := range p.producers {
		r.producers = append(r.producers, t.s.readProducer(t, p.stream, state.Producer))
	}
	for _, e := range p.entries {
		refs.load(e.Object)
	}
	return r
}

// takePart takes a part of one stream's work in, and counts the entries per object.
func (t *tx) takePart(a advance, r partRead, taken map[string]int64) error {
	row, ok, err := r.row.get()
	if err != nil {
		return err
	}
	durable, err := r.last.durableEnd(row)
	if err != nil {
		return err
	}
	if !ok || row.State == StreamDeleting || r.end <= durable {
		return nil
	}
	if mine := row.State == StreamOpen && row.OpenBy == a.log; !mine && !broken("epoch") {
		if !a.strict {
			return nil
		}
		return fmt.Errorf("%w: stream %d, entries up to %d, durable end %d: it is %s by %s", ErrStaleStream, r.stream, r.end, durable, row.State, row.OpenBy)
	}
	if row.Ended != nil && r.end > *row.Ended {
		return fmt.Errorf("%w: stream %d at %d, entries go up to %d", ErrStreamEnded, r.stream, *row.Ended, r.end)
	}
	for i, state := range r.streamPart.producers {
		known, exists, err := r.producers[i].get()
		if err != nil {
			return err
		}
		if exists {
			state = known.merge(state)
		}
		t.Set(t.s.key(spaceProducer, r.stream, state.Producer), encodeProducer(state))
	}
	return t.takeEntries(r.entries, durable, taken)
}

// takeEntries adds the entries beyond the durable end to the index; they must continue it.
func (t *tx) takeEntries(entries []ObjectEntry, durable int64, taken map[string]int64) error {
	for _, e := range entries {
		switch {
		case e.End <= durable:
			continue
		case e.Base < durable:
			return &StraddleError{Entry: e, DurableEnd: durable}
		case e.Base > durable:
			return fmt.Errorf("%w: stream %d: entry [%d, %d) of object %s, durable end %d", ErrGap, e.Stream, e.Base, e.End, e.Object, durable)
		}
		t.setEntry(e)
		taken[e.Object]++
		durable = e.End
	}
	return nil
}
