package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// verifyTimeout is how long a refusal waits for the metadata before it becomes ErrUnavailable.
const verifyTimeout = 5 * time.Second

// verify confirms, by a fresh read of the node row, that this node epoch still serves what it has open.
//
// An acknowledgement needs no such read, since the log of a fenced node acknowledges nothing. A refusal does when a newer leader could know better: a node
// that was cut off and does not know of its fence sees a gap where the producer has appended elsewhere, and an offset beyond its end that
// exists elsewhere. Its word would be final to the client. Refusals that stay true (a duplicate, an older producer epoch, an offset before
// the start, an end) need no confirmation.
func (e *Engine) verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	err := e.layer.VerifyNode(ctx, e.node)
	switch {
	case err == nil:
		return nil
	case terminal(err):
		e.fail(err)
		return fenced(err)
	}
	return fmt.Errorf("%w: node row cannot be read: %w", ErrUnavailable, err)
}

// refuse answers an append that is refused, after what has to be confirmed is.
func (s *Stream) refuse(refusal error, done func(AppendResult, error)) {
	s.engine.metrics.appends.refused.Inc()
	if !errors.Is(refusal, ErrOutOfOrderSequence) {
		done(AppendResult{}, refusal)
		return
	}
	started := s.engine.run("verify refusal", func(ctx context.Context) {
		if err := s.engine.verify(ctx); err != nil {
			refusal = err
		}
		done(AppendResult{}, refusal)
	})
	if !started {
		done(AppendResult{}, fmt.Errorf("%w: %v", ErrNotOpen, s))
	}
}
