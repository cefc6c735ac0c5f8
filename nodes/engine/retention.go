package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/varvedb/varve/layer"
)

// retained is what the retention loop remembers of a stream, so that it need not read the index of every stream in every round. Guarded by
// the stream's mu.
type retained struct {
	oldestKnown bool
	oldest      int64 // MaxTimestamp of the first index entry, ms; math.MaxInt64 when there is none
	bytesKnown  bool
	bytes       int64 // of all index entries
}

func (r *retained) forget() { *r = retained{} }

// noteEntries counts index entries that were just committed.
func (s *Stream) noteEntries(added []layer.ObjectEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, entry := range added {
		if s.retained.oldest == math.MaxInt64 {
			s.retained.oldestKnown = false
		}
		s.retained.bytes += entry.Len
		if s.engine.small(entry) {
			s.small.count++
		}
	}
}

// retentionLoop applies retention.ms and retention.bytes.
func (e *Engine) retentionLoop(ctx context.Context) {
	e.every(ctx, "retention", e.options.RetentionInterval, e.retainAll)
}

// retainAll goes through the streams once. One that fails does not keep the others from being looked at.
func (e *Engine) retainAll(ctx context.Context) error {
	var errs []error
	for _, s := range e.Streams() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.retain(ctx, time.Now()); err != nil {
			if terminal(err) {
				return err
			}
			if len(errs) < 10 {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// retain trims whole objects: those whose newest record is too old, and the oldest ones beyond the size.
func (s *Stream) retain(ctx context.Context, now time.Time) error {
	options := s.engine.tables.TableOptions(s.table)
	s.mu.Lock()
	known, start, phase, packed := s.retained, s.start, s.phase, s.packed
	s.mu.Unlock()
	before := int64(math.MinInt64)
	if options.Retention >= 0 {
		before = now.Add(-options.Retention).UnixMilli()
	}
	old := options.Retention >= 0 && !(known.oldestKnown && known.oldest >= before)
	large := options.RetentionBytes >= 0 && !(known.bytesKnown && known.bytes <= options.RetentionBytes)
	if phase != serving || start >= packed || (!old && !large) {
		return nil
	}
	excess := int64(0)
	if large {
		bytes, err := s.size(ctx, start)
		if err != nil {
			return err
		}
		excess = bytes - options.RetentionBytes
	}
	return s.retainFrom(ctx, start, before, excess)
}

// size sums what the index entries hold.
func (s *Stream) size(ctx context.Context, from int64) (int64, error) {
	s.mu.Lock()
	if s.retained.bytesKnown {
		defer s.mu.Unlock()
		return s.retained.bytes, nil
	}
	s.retained.bytes = 0 // what is committed from here on is counted by noteEntries
	packed := s.packed
	s.mu.Unlock()
	var sum int64
	err := s.engine.eachEntry(ctx, s.id, from, packed, func(entry layer.ObjectEntry) (bool, error) {
		sum += entry.Len
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retained.bytes += sum
	s.retained.bytesKnown = true
	return s.retained.bytes, nil
}

// retainFrom finds the first entry that stays and trims to it.
func (s *Stream) retainFrom(ctx context.Context, start, before, excess int64) error {
	s.mu.Lock()
	packed, bytes, bytesKnown := s.packed, s.retained.bytes, s.retained.bytesKnown
	s.mu.Unlock()
	to, oldest := start, int64(math.MaxInt64)
	err := s.engine.eachEntry(ctx, s.id, start, packed, func(entry layer.ObjectEntry) (bool, error) {
		// Beyond the size a whole entry goes only when what stays is still at least the size.
		if entry.MaxTimestamp >= before && entry.Len > excess {
			oldest = entry.MaxTimestamp
			return false, nil
		}
		to, excess, bytes = entry.End, excess-entry.Len, bytes-entry.Len
		return true, nil
	})
	if err != nil {
		return err
	}
	if to > start {
		if _, err := s.trimPacked(ctx, to); err != nil {
			return fmt.Errorf("retention: %w", err)
		}
		s.engine.logger.Debug("retention removed records", "stream", s.id, "start", to)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.packed == packed && s.start == max(to, start) {
		s.retained = retained{oldestKnown: true, oldest: oldest, bytesKnown: bytesKnown, bytes: bytes}
	}
	return nil
}

// eachEntry calls fn for the index entries of a stream that end after from and begin below to, until fn says false.
func (e *Engine) eachEntry(ctx context.Context, stream, from, to int64, fn func(layer.ObjectEntry) (bool, error)) error {
	const page = 256
	for from < to {
		list, err := e.layer.ObjectEntries(ctx, stream, from, page)
		if err != nil {
			return fmt.Errorf("index of stream %d from offset %d: %w", stream, from, err)
		}
		for _, entry := range list {
			if entry.Base >= to {
				return nil
			}
			more, err := fn(entry)
			if err != nil || !more {
				return err
			}
			from = entry.End
		}
		if len(list) < page {
			return nil
		}
	}
	return nil
}
