package engine

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

// Read asks for batches from an offset on.
type Read struct {
	Offset   int64
	MaxBytes int // bound of the batches' bytes
	// MinOneBatch gives one batch even when it alone exceeds MaxBytes, so that a reader always gets on.
	MinOneBatch bool
}

// ReadResult is what a read found.
type ReadResult struct {
	// Batches are whole ones, in order, without a hole. The first may begin before the offset that was asked for. They are shared with
	// caches and must not be changed.
	Batches [][]byte
	Start   int64 // first offset that is kept
	End     int64 // durable end when the read began: the high watermark
	Next    int64 // where to read on
}

// Read gives batches from an offset on, all of them durable. A read at End gives none. It may give less than there is room for.
//
// Errors: *OffsetOutOfRange, ErrNotOpen; ErrUnavailable (retryable); *segment.CorruptError and *MissingObjectError for this offset, which an operator
// must look at; the error of ctx.
func (s *Stream) Read(ctx context.Context, r Read) (ReadResult, error) {
	result, packed, err := s.readTail(r)
	var outside *OffsetOutOfRange
	if errors.As(err, &outside) && r.Offset > outside.End {
		if unsure := s.engine.verify(ctx); unsure != nil {
			err = unsure
		}
	}
	if err == nil && r.Offset < packed {
		err = s.readPacked(ctx, r, packed, &result)
	}
	if err != nil {
		return ReadResult{}, err
	}
	bytes := 0
	for _, b := range result.Batches {
		bytes += len(b)
	}
	s.engine.metrics.Reads.Inc()
	s.engine.metrics.ReadBytes.Add(float64(bytes))
	return result, nil
}

// readTail begins a read: it checks the offset, and serves it when it lies in the log cache. Otherwise the offset is below packed, and nothing
// was read.
func (s *Stream) readTail(r Read) (ReadResult, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result := ReadResult{Start: s.start, End: s.end, Next: r.Offset}
	if s.phase == closed {
		return result, 0, fmt.Errorf("%w: %v", ErrNotOpen, s)
	}
	if r.Offset < s.start || r.Offset > s.end {
		return result, 0, &OffsetOutOfRange{Stream: s.id, Offset: r.Offset, Start: s.start, End: s.end}
	}
	if r.Offset < s.packed {
		return result, s.packed, nil
	}
	first := sort.Search(len(s.tail), func(i int) bool { return s.tail[i].last >= r.Offset })
	room := r.MaxBytes
	for _, b := range s.tail[first:] {
		if b.last >= s.end || !result.take(b.data, b.last, &room, r.MinOneBatch) {
			break
		}
	}
	if len(result.Batches) > 0 {
		s.engine.metrics.logHit.Inc()
	}
	return result, s.packed, nil
}

// take adds a batch if there is room for it.
func (r *ReadResult) take(data []byte, last int64, room *int, minOne bool) bool {
	if len(data) > *room && !(minOne && len(r.Batches) == 0) {
		return false
	}
	r.Batches = append(r.Batches, data)
	r.Next = last + 1
	*room -= len(data)
	return true
}

// readPacked serves a read from data objects. An object that is gone is looked for once more in a fresh index: the entry may have been merged
// into another object, or trimmed.
func (s *Stream) readPacked(ctx context.Context, r Read, packed int64, result *ReadResult) error {
	cur := s.readers.take(s.engine, r.Offset)
	defer func() { s.readers.put(s.engine, cur, result.Next) }()
	var object string
	for {
		entry, err := s.readObjects(ctx, cur, r, packed, result)
		switch {
		case err == nil:
			return nil
		case len(result.Batches) > 0:
			return nil // the next read meets the error, at its own offset
		case !errors.Is(err, objects.ErrNotFound):
			return readError(ctx, err)
		case entry.Object == object:
			s.engine.logger.Error("object is missing", "object", entry.Object, "stream", s.id, "offset", r.Offset)
			return &MissingObjectError{Stream: s.id, Offset: r.Offset, Object: entry.Object}
		}
		object = entry.Object
		s.engine.entries.drop(s.id)
		cur.release(s.engine)
	}
}

// readError says what kind of failure err is.
func readError(ctx context.Context, err error) error {
	var outOfRange *OffsetOutOfRange
	switch {
	case timedOut(ctx, err), errors.Is(err, segment.ErrCorrupt), errors.Is(err, ErrNotOpen), errors.Is(err, ErrUnavailable), errors.As(err, &outOfRange):
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// readObjects reads block after block until there is no more room. It returns the entry that it was reading when it failed.
func (s *Stream) readObjects(ctx context.Context, cur *cursor, r Read, packed int64, result *ReadResult) (layer.ObjectEntry, error) {
	room := r.MaxBytes
	for result.Next < packed {
		entry, err := s.engine.entry(ctx, s, result.Next)
		if err != nil {
			return entry, err
		}
		blocks, err := s.engine.index(ctx, entry)
		if err != nil {
			return entry, err
		}
		at := sort.Search(len(blocks), func(i int) bool { return blocks[i].End > result.Next })
		for ; at < len(blocks); at++ {
			data, err := cur.block(ctx, s, entry, blocks, at, room)
			if err != nil {
				return entry, err
			}
			more, err := result.takeBlock(entry.Object, blocks[at], data, &room, r.MinOneBatch)
			if err != nil || !more {
				return entry, err
			}
		}
	}
	return layer.ObjectEntry{}, nil
}

// takeBlock adds the batches of a block from r.Next on; false when there is no more room.
func (r *ReadResult) takeBlock(object string, block segment.Block, data []byte, room *int, minOne bool) (bool, error) {
	for len(data) > 0 {
		b, rest, err := nextBatch(object, block, data)
		if err != nil {
			return false, err
		}
		data = rest
		if last := b.LastOffset(); last >= r.Next && !r.take(b.Raw, last, room, minOne) {
			return false, nil
		}
	}
	if r.Next < block.End {
		return false, &segment.CorruptError{Object: object, Offset: block.Pos, Reason: fmt.Sprintf("block of offsets [%d, %d) ends at offset %d", block.Base, block.End, r.Next)}
	}
	return *room > 0, nil
}

// nextBatch takes the first batch off what is left of a block.
func nextBatch(object string, block segment.Block, data []byte) (batch.Batch, []byte, error) {
	b, rest, err := batch.Next(data)
	switch {
	case err != nil:
		err = &segment.CorruptError{Object: object, Offset: block.Pos + block.Len - int64(len(data)), Reason: err.Error()}
	case b.BaseOffset < block.Base || b.LastOffset() >= block.End || b.LastOffsetDelta < 0:
		err = &segment.CorruptError{Object: object, Offset: block.Pos + block.Len - int64(len(data)),
			Reason: fmt.Sprintf("batch of offsets %d to %d in a block of [%d, %d)", b.BaseOffset, b.LastOffset(), block.Base, block.End)}
	}
	return b, rest, err
}
