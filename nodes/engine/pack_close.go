package engine

import (
	"context"
	"math"
	"time"
)

// closeAlone is how long nobody must have waited for a stream to close for one that does now to be packed alone.
const closeAlone = time.Second

// closeLoop packs what closing streams have, and nothing else, so that the move of a stream waits neither for what others have nor for a pack that is being written. It leaves
// the segments in the log, for a pack of everything to come, which finds what was taken below the durable end.
//
// Where one close follows another many streams are closing, and all is packed for them together; likewise where they have so many small pieces that they are better copied.
func (e *Engine) closeLoop(ctx context.Context) {
	for {
		select {
		case <-e.closeNow:
		case <-e.failed:
			return
		case <-ctx.Done():
			return
		}
		if err := e.packClosing(ctx); err != nil {
			if ctx.Err() == nil {
				e.fail(err)
			}
			return
		}
	}
}

// pokeCloser makes the closing loop look.
func (e *Engine) pokeCloser() {
	select {
	case e.closeNow <- struct{}{}:
	default:
	}
}

// packClosing packs the streams that wait to be closed, or leaves them to the packing loop.
func (e *Engine) packClosing(ctx context.Context) error {
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	closing := e.waiters.closing(false)
	if len(closing) == 0 {
		return nil
	}
	plan := e.planClosing(closing)
	if plan == nil {
		e.waiters.handOver(closing)
		e.pokePacker()
		return nil
	}
	commit, err := e.writePack(ctx, plan)
	if err != nil {
		return err
	}
	return e.takePack(ctx, plan, commit)
}

// planClosing is a pack of what closing streams have, all of it adopted but for inline segments. It is nil where that would not be all that they wait
// for, or too many index entries, or where others were closing just now.
func (e *Engine) planClosing(closing map[*Stream]bool) *packPlan {
	acknowledged := choose(e.log.Acknowledged(), math.MaxInt64)
	if len(acknowledged) == 0 || time.Since(e.hurried) <= e.alone {
		return nil
	}
	p := e.group(acknowledged, func(s *Stream) bool { return closing[s] })
	for _, sp := range p.streams {
		if sp.end < sp.stream.End() {
			return nil
		}
		sp.adopt = true
	}
	if stored := p.stored(); len(p.streams) < len(closing) || stored.bytes < hurriedBytes(stored.pieces)*int64(stored.pieces) {
		return nil
	}
	p.hurried = true
	e.finishPlan(p)
	return p
}
