package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

// maxDecompressed bounds what the records of one batch may take when they are looked at, bytes.
const maxDecompressed = 256 << 20

// errFound ends a walk.
var errFound = errors.New("found")

// OffsetFor gives the first record whose timestamp is at least timestamp, ms, among those that are kept and durable (Kafka: ListOffsets by
// time). found is false when there is none.
//
// Errors: those of Read.
func (s *Stream) OffsetFor(ctx context.Context, timestamp int64) (offset, ts int64, found bool, err error) {
	err = s.walk(ctx, timestamp, func(b batch.Batch, start int64) error {
		record, ok, err := firstAtOrAfter(b, start, timestamp)
		if err != nil {
			return fmt.Errorf("batch at offset %d of stream %d: %w", b.BaseOffset, s.id, err)
		}
		if !ok {
			return nil
		}
		offset, ts, found = record.Offset, record.Timestamp, true
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return offset, ts, found, err
}

// MaxTimestamp gives the first record with the largest timestamp (Kafka: ListOffsets -3). found is false for a stream without records.
func (s *Stream) MaxTimestamp(ctx context.Context) (offset, ts int64, found bool, err error) {
	s.mu.Lock()
	start, packed, largest := s.start, s.packed, int64(math.MinInt64)
	for _, b := range s.tail {
		if b.last < s.end && b.last >= s.start {
			largest = max(largest, b.maxTimestamp)
		}
	}
	s.mu.Unlock()
	err = s.engine.eachEntry(ctx, s.id, start, packed, func(entry layer.ObjectEntry) (bool, error) {
		largest = max(largest, entry.MaxTimestamp)
		return true, nil
	})
	if err != nil {
		return 0, 0, false, readError(ctx, err)
	}
	for largest > math.MinInt64 {
		if offset, ts, found, err = s.OffsetFor(ctx, largest); found || err != nil {
			return offset, ts, found, err
		}
		if largest, err = s.largestBelow(ctx, largest); err != nil { // the largest lay in a part of an object that is trimmed
			return 0, 0, false, err
		}
	}
	return 0, 0, false, nil
}

// largestBelow is the largest timestamp of the batches that are kept, below a bound.
func (s *Stream) largestBelow(ctx context.Context, bound int64) (int64, error) {
	largest := int64(math.MinInt64)
	err := s.walk(ctx, math.MinInt64, func(b batch.Batch, _ int64) error {
		if b.MaxTimestamp < bound {
			largest = max(largest, b.MaxTimestamp)
		}
		return nil
	})
	return largest, err
}

// firstAtOrAfter looks into a batch for the first record from offset start on with at least that timestamp.
func firstAtOrAfter(b batch.Batch, start, timestamp int64) (batch.Record, bool, error) {
	for record, err := range b.All(maxDecompressed) {
		if err != nil {
			return batch.Record{}, false, err
		}
		if record.Offset >= start && record.Timestamp >= timestamp {
			return record, true, nil
		}
	}
	return batch.Record{}, false, nil
}

// walk visits in order the durable batches with records at or after the start and a largest timestamp of at least timestamp, until visit fails.
func (s *Stream) walk(ctx context.Context, timestamp int64, visit func(b batch.Batch, start int64) error) error {
	s.mu.Lock()
	start, phase := s.start, s.phase
	s.mu.Unlock()
	if phase == closed {
		return fmt.Errorf("%w: %v", ErrNotOpen, s)
	}
	for from := start; ; {
		s.mu.Lock()
		packed, end, tail := s.packed, s.end, s.tail
		s.mu.Unlock()
		if from >= packed {
			return walkTail(tail, from, end, start, timestamp, visit)
		}
		err := s.engine.eachEntry(ctx, s.id, from, packed, func(entry layer.ObjectEntry) (bool, error) {
			if entry.MaxTimestamp < timestamp {
				return true, nil
			}
			return true, s.walkEntry(ctx, entry, start, timestamp, visit)
		})
		if err != nil {
			if errors.Is(err, errFound) {
				return err
			}
			return readError(ctx, err)
		}
		from = packed
	}
}

// walkTail visits batches of the log cache.
func walkTail(tail []tailBatch, from, end, start, timestamp int64, visit func(batch.Batch, int64) error) error {
	first := sort.Search(len(tail), func(i int) bool { return tail[i].last >= from })
	for _, t := range tail[first:] {
		if t.last >= end {
			return nil
		}
		if t.maxTimestamp < timestamp {
			continue
		}
		b, _, err := batch.Next(t.data)
		if err != nil {
			return err
		}
		if err := visit(b, start); err != nil {
			return err
		}
	}
	return nil
}

// walkEntry visits batches of one index entry.
func (s *Stream) walkEntry(ctx context.Context, entry layer.ObjectEntry, start, timestamp int64, visit func(batch.Batch, int64) error) error {
	blocks, err := s.engine.index(ctx, entry)
	if err != nil {
		return s.missing(entry, err)
	}
	for _, block := range blocks {
		if block.MaxTimestamp < timestamp || block.End <= start {
			continue
		}
		data, err := s.engine.block(ctx, entry.Object, block)
		if err != nil {
			return s.missing(entry, err)
		}
		if err := walkBlock(entry.Object, block, data, start, timestamp, visit); err != nil {
			return err
		}
	}
	return nil
}

func walkBlock(object string, block segment.Block, data []byte, start, timestamp int64, visit func(batch.Batch, int64) error) error {
	for len(data) > 0 {
		b, rest, err := nextBatch(object, block, data)
		if err != nil {
			return err
		}
		data = rest
		if b.MaxTimestamp < timestamp || b.LastOffset() < start {
			continue
		}
		if err := visit(b, start); err != nil {
			return err
		}
	}
	return nil
}

// missing names the object of an index entry that the store does not have.
func (s *Stream) missing(entry layer.ObjectEntry, err error) error {
	if errors.Is(err, objects.ErrNotFound) {
		return &MissingObjectError{Stream: s.id, Offset: entry.Base, Object: entry.Object}
	}
	return err
}
