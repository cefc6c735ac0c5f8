package engine

import (
	"context"
	"fmt"
)

// EndStream ends the stream for ever: the final append, if there is one, is its last, and no record follows. Appends that come while the
// stream is being ended are refused. It is idempotent: without a final append, and with one that its producer had appended before (Duplicate in
// the result), it succeeds on an ended stream.
//
// When it fails with ErrUnavailable or the end of ctx, the end is decided but perhaps not yet recorded: the engine goes on trying until this
// node epoch is over, and appends stay refused (ErrUnavailable). Call it again to wait for it.
//
// Errors: those of Append.
func (s *Stream) EndStream(ctx context.Context, final *Append) (AppendResult, error) {
	result, err := s.lastAppend(ctx, final)
	if err != nil {
		return AppendResult{}, err
	}
	return result, s.finishEnd(ctx)
}

// lastAppend decides where the stream ends.
func (s *Stream) lastAppend(ctx context.Context, final *Append) (AppendResult, error) {
	if final == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended == none && s.ending == none {
			if err := s.refusal(); err != nil {
				return AppendResult{}, err
			}
			s.ending = s.next
		}
		return AppendResult{Base: none, Last: none, LogAppendTime: none}, nil
	}
	if err := s.Reserve(ctx, final.Bytes()); err != nil {
		return AppendResult{}, err
	}
	if final.WriterSeq != "" {
		if err := s.loadWriterSeq(ctx); err != nil {
			return AppendResult{}, err
		}
	}
	wait := newAppendWait()
	answer, err := s.submit(*final, true, wait.done)
	switch {
	case err != nil:
		return AppendResult{}, err
	case answer != nil:
		return s.endAfterDuplicate(*answer)
	}
	result, err := wait.result(ctx)
	if err != nil {
		return AppendResult{}, err
	}
	if result.Duplicate {
		return s.endAfterDuplicate(result)
	}
	return result, nil
}

// endAfterDuplicate ends the stream when its final append had been appended before, but not as the final one: a retry after a crash
// between the two steps.
func (s *Stream) endAfterDuplicate(result AppendResult) (AppendResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == none && s.ending == none {
		if result.Last != s.next-1 {
			return AppendResult{}, fmt.Errorf("%w: %v cannot end with the append at offset %d, its records go on to offset %d", ErrInvalid, s, result.Last, s.next-1)
		}
		if err := s.refusal(); err != nil {
			return AppendResult{}, err
		}
		s.ending = s.next
	}
	return result, nil
}

// finishEnd records the end that was decided, once everything before it is durable.
func (s *Stream) finishEnd(ctx context.Context) error {
	err := s.await(ctx, func() (bool, error) { return s.ended != none || s.end == s.ending, s.failure })
	if err != nil {
		return err
	}
	s.mu.Lock()
	end, done := s.ending, s.ended != none
	s.mu.Unlock()
	if done {
		return nil
	}
	if err := s.engine.layer.EndStream(ctx, s.engine.node, s.id, s.epoch, end); err != nil {
		if terminal(err) {
			s.engine.fail(err)
			return fenced(err)
		}
		return fmt.Errorf("%w: end %v at offset %d: %w", ErrUnavailable, s, end, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = end
	s.wake()
	return nil
}

// unfinishedEnd tells whether the stream's end is decided and not recorded.
func (s *Stream) unfinishedEnd() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending != none && s.ended == none && s.failure == nil && s.phase != closed && s.end == s.ending
}
