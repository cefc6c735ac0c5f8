package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvedb/varve/layer"
)

// Trim removes the records below offset to (Kafka: DeleteRecords) and returns the new start. At or below the start it does nothing. What lies
// in the log cache is packed first: a stream's index never begins before its start and never leaves a hole behind it.
//
// Errors: *OffsetOutOfRange above End; ErrNotOpen, ErrFenced; ErrUnavailable (retryable); the error of ctx.
func (s *Stream) Trim(ctx context.Context, to int64) (int64, error) {
	s.mu.Lock()
	start, end, phase := s.start, s.end, s.phase
	s.mu.Unlock()
	switch {
	case phase != serving:
		return start, fmt.Errorf("%w: %v", ErrNotOpen, s)
	case to <= start:
		return start, nil
	case to > end:
		return start, &OffsetOutOfRange{Stream: s.id, Offset: to, Start: start, End: end}
	}
	if err := s.awaitPacked(ctx, to); err != nil {
		return start, err
	}
	return s.trimPacked(ctx, to)
}

// trimPacked moves the start to an offset that is in data objects, or at their end.
func (s *Stream) trimPacked(ctx context.Context, to int64) (int64, error) {
	e := s.engine
	for more := true; more; {
		var row layer.StreamRow
		var err error
		row, more, err = e.layer.TrimStream(ctx, e.node, s.id, s.epoch, to)
		if err != nil {
			return s.Start(), s.trimError(ctx, to, err)
		}
		s.trimmed(row.Start)
	}
	e.metrics.TrimmedStreams.Inc()
	return s.Start(), nil
}

func (s *Stream) trimError(ctx context.Context, to int64, err error) error {
	switch {
	case terminal(err):
		s.engine.fail(err)
		return fenced(err)
	case errors.Is(err, layer.ErrStaleStream), errors.Is(err, layer.ErrStreamNotFound):
		return fmt.Errorf("%w: trim %v to %d: %w", ErrNotOpen, s, to, err)
	case timedOut(ctx, err):
		return err
	}
	return fmt.Errorf("%w: trim %v to %d: %w", ErrUnavailable, s, to, err)
}

// trimmed notes a start that is committed.
func (s *Stream) trimmed(start int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if start > s.start {
		s.start = start
		s.retained.forget()
		s.wake()
	}
}
