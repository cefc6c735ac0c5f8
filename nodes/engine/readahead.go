package engine

import (
	"context"
	"sync"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/segment"
)

const (
	cursorsKept   = 8               // sequential readers that are remembered for each stream
	cursorIdle    = 5 * time.Second // after which what was fetched ahead of a reader is given up
	firstWindow   = 2 << 20         // bytes fetched ahead once a reader proves sequential; doubles with each read
	planLookahead = 4               // index entries that planning looks into at most
	indexesAhead  = 16              // block indexes beyond those that are asked for at once: of adopted segments each is one more read of the store
)

// readers are the sequential readers of packed data that a stream remembers: a read that begins where another ended is the same reader.
type readers struct {
	mu      sync.Mutex
	cursors []*cursor // idle ones, least recently used first
	shut    bool      // nothing is remembered any more
}

// cursor is one sequential reader. While a read uses it nobody else has it.
type cursor struct {
	next   int64 // where the reader is expected to read on
	window int64 // bytes to fetch ahead; 0 for a reader that was seen once
	used   time.Time
	ahead  []*aheadBlock // in the order in which the reader will want them
	plan   int64         // offset from which blocks are not yet planned
	bytes  int64         // of ahead, taken from the engine's budget
}

// aheadBlock is a block that was asked for before its reader came: kept here, because the block cache may not admit it.
type aheadBlock struct {
	object string
	block  segment.Block
	data   []byte // nil while fetch is under way
	fetch  *fetch
}

// take gives the reader that is expected at offset, or a new one.
func (r *readers) take(e *Engine, offset int64) *cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range r.cursors {
		if c.next == offset {
			r.cursors = append(r.cursors[:i], r.cursors[i+1:]...)
			c.window = min(max(2*c.window, firstWindow), e.options.ReadaheadWindow)
			return c
		}
	}
	return &cursor{plan: offset}
}

// put remembers a reader, in place of the one that was idle longest when there are many.
func (r *readers) put(e *Engine, c *cursor, next int64) {
	c.next, c.used = next, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		c.release(e)
		return
	}
	if len(r.cursors) >= cursorsKept {
		r.cursors[0].release(e)
		r.cursors = append(r.cursors[:0], r.cursors[1:]...)
	}
	r.cursors = append(r.cursors, c)
}

// close forgets all readers for good.
func (r *readers) close(e *Engine) {
	r.mu.Lock()
	r.shut = true
	r.mu.Unlock()
	r.release(e, func(*cursor) bool { return true })
}

// release forgets readers.
func (r *readers) release(e *Engine, which func(*cursor) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.cursors[:0]
	for _, c := range r.cursors {
		if which(c) {
			c.release(e)
		} else {
			kept = append(kept, c)
		}
	}
	clear(r.cursors[len(kept):])
	r.cursors = kept
	if len(kept) == 0 {
		r.cursors = nil
	}
}

// release gives up what was fetched ahead.
func (c *cursor) release(e *Engine) {
	if c.bytes > 0 {
		e.ahead.give(c.bytes)
	}
	c.ahead, c.bytes, c.plan = nil, 0, 0
}

// block gives block i of an entry, and sees to it that what the reader will want next is being fetched. want is how many bytes this read
// still has room for.
func (c *cursor) block(ctx context.Context, s *Stream, entry layer.ObjectEntry, blocks []segment.Block, i int, want int) ([]byte, error) {
	e := s.engine
	held := c.advance(e, entry.Object, blocks[i])
	var own *fetch // started before anything ahead of it
	if held == nil {
		held = e.demand(entry.Object, blocks[i])
		own = held.fetch
		c.hold(e, held)
	}
	if c.plan < blocks[i].End {
		c.plan = blocks[i].End
	}
	c.planAhead(s, entry, blocks, max(c.window, min(int64(want), e.options.ReadaheadWindow)-blocks[i].Len))
	if held.fetch == nil {
		return held.data, nil
	}
	data, err := held.fetch.wait(ctx)
	if err == nil || ctx.Err() != nil {
		return data, err
	}
	c.release(e) // a failure must not be kept for the next read
	if own == nil {
		return e.block(ctx, entry.Object, blocks[i]) // what was fetched ahead had failed, perhaps long ago
	}
	return nil, err
}

// demand asks for a block that its reader waits for.
func (e *Engine) demand(object string, b segment.Block) *aheadBlock {
	data, f, mine := e.blocks.begin(blockKey{object, b.Pos}, b.Len)
	if f == nil {
		e.metrics.blockHit.Inc()
		return &aheadBlock{object: object, block: b, data: data}
	}
	e.metrics.blockMiss.Inc()
	if mine {
		e.startFetch(object, []segment.Block{b}, []*fetch{f})
	}
	return &aheadBlock{object: object, block: b, fetch: f}
}

// advance gives the block if it was fetched ahead, and gives up what was to come before it. The block itself stays until the reader has
// passed it: a read may end within it.
func (c *cursor) advance(e *Engine, object string, b segment.Block) *aheadBlock {
	for i, a := range c.ahead {
		if a.block.Pos == b.Pos && a.object == object {
			var passed int64
			for _, p := range c.ahead[:i] {
				passed += p.block.Len
			}
			c.ahead = c.ahead[i:]
			c.bytes -= passed
			e.ahead.give(passed)
			e.metrics.aheadHit.Inc()
			return a
		}
	}
	c.release(e)
	return nil
}

// hold keeps a block that the reader is in, if the budget allows.
func (c *cursor) hold(e *Engine, a *aheadBlock) {
	if e.ahead.take(a.block.Len) {
		c.ahead = append(c.ahead, a)
		c.bytes += a.block.Len
	}
}

// planAhead starts fetches until window bytes are ahead of the reader. It waits for nothing: where an index is not yet known it asks for it
// and stops, and goes on from there with the next block that is read.
func (c *cursor) planAhead(s *Stream, entry layer.ObjectEntry, blocks []segment.Block, window int64) {
	e := s.engine
	window = min(window, e.ahead.limit/2) // a window as large as the budget would be refilled block by block
	if c.bytes > window-window/4 {
		return // refilled in large steps, so that one ranged read brings many blocks
	}
	s.mu.Lock()
	packed := s.packed
	s.mu.Unlock()
	c.planIndexes(s, entry, window)
	for range planLookahead {
		if c.bytes >= window || c.plan >= packed {
			return
		}
		if c.plan >= entry.End {
			next, ok := e.entries.find(s.id, c.plan)
			if !ok {
				return // read by the reader itself when it gets there
			}
			var f *indexFetch
			if blocks, f = e.startIndex(next); f != nil {
				return
			}
			entry = next
		}
		if !c.planEntry(e, entry, blocks, window) {
			return
		}
	}
}

// planIndexes asks for the block indexes of the entries after one, as far as the window goes: known by the time that planning gets there.
func (c *cursor) planIndexes(s *Stream, entry layer.ObjectEntry, window int64) {
	e := s.engine
	for range indexesAhead {
		next, ok := e.entries.find(s.id, entry.End)
		if !ok || window <= 0 {
			return
		}
		e.startIndex(next)
		entry, window = next, window-next.Len
	}
}

// planEntry plans the blocks of one entry; false when the budget is used up.
func (c *cursor) planEntry(e *Engine, entry layer.ObjectEntry, blocks []segment.Block, window int64) bool {
	var run []segment.Block
	var fetches []*fetch
	var runBytes int64
	start := func() {
		if len(run) > 0 {
			e.startFetch(entry.Object, run, fetches)
		}
		run, fetches, runBytes = nil, nil, 0
	}
	defer start()
	for _, b := range blocks {
		if b.Base < c.plan {
			continue
		}
		if c.bytes >= window {
			return true
		}
		if !e.ahead.take(b.Len) {
			return false
		}
		c.bytes += b.Len
		c.plan = b.End
		data, f, mine := e.blocks.begin(blockKey{entry.Object, b.Pos}, b.Len)
		c.ahead = append(c.ahead, &aheadBlock{object: entry.Object, block: b, data: data, fetch: f})
		if !mine {
			start()
			continue
		}
		if runBytes > 0 && runBytes+b.Len > e.options.FetchBytes {
			start()
		}
		run, fetches, runBytes = append(run, b), append(fetches, f), runBytes+b.Len
	}
	return true
}
