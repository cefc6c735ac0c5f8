package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
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
		if err := e.pack(ctx); err != nil {
			if ctx.Err() == nil {
				e.fail(err)
			}
			return
		}
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
	return e.waiters.any() || unpacked >= e.options.PackBytes || time.Since(e.packer.since) >= e.options.PackInterval ||
		e.manySegments()
}

// manySegments tells whether so many segments wait that recovery would take long, or new ones would find no room in the layer.
func (e *Engine) manySegments() bool {
	waiting := e.log.Backlog()
	return waiting.Objects >= e.options.PackSegments || waiting.Segments >= e.options.PackInlineSegments || waiting.InlineBytes >= e.options.PackInlineBytes
}

// pack moves the streams' index over what segments hold: some of it is adopted where it lies, the rest is copied into data objects. It goes on until
// that is done: an error is final, or ctx has ended.
//
// Nothing is visible before CommitPack, which does everything at once or in parts; a crash before it leaves prepared objects, which expire, and the segments
// as they were. What is adopted and how the rest is cut is decided once, in the plan, and every attempt commits the same index entries, so that
// a pack that was committed in part can be tried again, whoever has begun to wait for it meanwhile.
//
// While it writes objects, streams may be closed by packs of their own (closeLoop). Those take all that their streams have, so that nothing of it is beyond the
// durable end any more when this pack is committed, which passes over it then. From the first commit on there are none: a part of one pack and a part of another could
// leave an entry that begins below the durable end and ends above it.
func (e *Engine) pack(ctx context.Context) error {
	e.packMu.Lock()
	defer e.packMu.Unlock()
	e.commitMu.Lock()
	plan := e.nextPack()
	e.commitMu.Unlock()
	if plan == nil {
		e.packer.since = time.Time{}
		return nil
	}
	commit, err := e.writePack(ctx, plan)
	if err != nil {
		return err
	}
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	if err := e.takePack(ctx, plan, commit); err != nil {
		return err
	}
	e.packer.since = time.Now()
	return nil
}

// takePack commits a pack that was written, and writes it anew where that took too long. Call with commitMu held.
func (e *Engine) takePack(ctx context.Context, p *packPlan, commit layer.Pack) error {
	for {
		err := e.commitPack(ctx, commit)
		if err == nil {
			break
		}
		if !errors.Is(err, layer.ErrNotPrepared) || ctx.Err() != nil {
			return packError(p, err)
		}
		e.logger.Warn("data objects of a pack expired before it was committed, writing them anew", "first", p.first, "next", p.next, "error", err)
		if commit, err = e.writePack(ctx, p); err != nil {
			return err
		}
	}
	e.committed(p, commit.Entries)
	e.finishPack(p)
	e.metrics.Packs.Inc()
	e.metrics.PackSeconds.Observe(time.Since(p.began).Seconds())
	return nil
}

// finishPack makes the streams read from the objects what was read from memory before, and frees that memory.
func (e *Engine) finishPack(p *packPlan) {
	for _, sp := range p.streams {
		sp.stream.packedTo(sp)
	}
	e.metrics.packedAdopted.Add(float64(p.adoptedBytes))
	e.metrics.packedCopied.Add(float64(p.copiedBytes))
	if p.hurried {
		e.hurried = time.Now()
	}
	if p.next == p.first {
		return // the segments wait for a pack that takes all of them
	}
	e.log.Packed(p.next)
	e.metrics.UnpackedBytes.Set(float64(e.unpacked.Add(-p.bytes)))
}

// packError says what a pack was doing.
func packError(p *packPlan, err error) error {
	return fmt.Errorf("pack segments [%d, %d): %w", p.first, p.next, err)
}
