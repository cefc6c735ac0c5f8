package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvedb/varve/wal/segment"
)

// blockKey names a block for good: objects never change.
type blockKey struct {
	object string
	pos    int64
}

// overhead is what a cached block, index or page costs beside its bytes.
const overhead = 256

// blockCache has blocks of data objects, checked, and the fetches that are under way: one for each block however many wait for it.
type blockCache struct {
	cache *otter.Cache[blockKey, []byte]
	slots chan struct{} // bounds parallel reads of the store

	mu      sync.Mutex
	fetches map[blockKey]*fetch
}

// fetch is a block that is being read. done is closed when data or err is set.
type fetch struct {
	key  blockKey
	size int64
	done chan struct{}
	data []byte
	err  error
}

func newBlockCache(o Options) (*blockCache, error) {
	cache, err := otter.New(&otter.Options[blockKey, []byte]{
		MaximumWeight: uint64(o.BlockCacheBytes),
		Weigher:       func(k blockKey, v []byte) uint32 { return uint32(len(v) + len(k.object) + overhead) },
	})
	if err != nil {
		return nil, fmt.Errorf("block cache: %w", err)
	}
	return &blockCache{cache: cache, slots: make(chan struct{}, o.FetchParallel), fetches: make(map[blockKey]*fetch)}, nil
}

func (c *blockCache) close() { c.cache.StopAllGoroutines() }

func (c *blockCache) putCopy(key blockKey, data []byte) {
	c.cache.Set(key, append([]byte(nil), data...))
}

// slot waits for the right to read from the store; false when ctx ended.
func (c *blockCache) slot(ctx context.Context) bool {
	select {
	case c.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *blockCache) release() { <-c.slots }

// begin gives what is known of a block: its data, a fetch under way, or a new fetch that the caller must carry out (mine).
func (c *blockCache) begin(key blockKey, size int64) (data []byte, f *fetch, mine bool) {
	if data, ok := c.cache.GetIfPresent(key); ok {
		return data, nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.fetches[key]; f != nil {
		return nil, f, false
	}
	if data, ok := c.cache.GetIfPresent(key); ok { // it landed in between
		return data, nil, false
	}
	f = &fetch{key: key, size: size, done: make(chan struct{})}
	c.fetches[key] = f
	return nil, f, true
}

// end answers a fetch.
func (c *blockCache) end(f *fetch, data []byte, err error) {
	f.data, f.err = data, err
	if err == nil {
		c.cache.Set(f.key, data)
	}
	c.mu.Lock()
	delete(c.fetches, f.key)
	c.mu.Unlock()
	close(f.done)
}

// wait waits for the block.
func (f *fetch) wait(ctx context.Context) ([]byte, error) {
	select {
	case <-f.done:
		return f.data, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// block gives one block, from the cache or the store.
func (e *Engine) block(ctx context.Context, object string, b segment.Block) ([]byte, error) {
	data, f, mine := e.blocks.begin(blockKey{object, b.Pos}, b.Len)
	if f == nil {
		e.metrics.blockHit.Inc()
		return data, nil
	}
	e.metrics.blockMiss.Inc()
	if mine {
		e.startFetch(object, []segment.Block{b}, []*fetch{f})
	}
	return f.wait(ctx)
}

// startFetch reads adjacent blocks in one ranged read, on a goroutine of the engine: a reader that gives up does not take the block from others.
func (e *Engine) startFetch(object string, blocks []segment.Block, fetches []*fetch) {
	fail := func(err error) {
		for _, f := range fetches {
			e.blocks.end(f, nil, err)
		}
	}
	started := e.run("fetch", func(ctx context.Context) {
		if !e.blocks.slot(ctx) {
			fail(errStopped)
			return
		}
		defer e.blocks.release()
		e.fetch(ctx, object, blocks, fetches)
	})
	if !started {
		fail(errStopped)
	}
}

// fetch reads, checks and hands out blocks that lie one after the other in the object. One that is corrupt does not keep the others from
// being handed out.
func (e *Engine) fetch(ctx context.Context, object string, blocks []segment.Block, fetches []*fetch) {
	first, last := blocks[0], blocks[len(blocks)-1]
	length := last.Pos + last.Len - first.Pos
	if len(blocks) == 1 {
		data, err := e.get(ctx, object, first.Pos, length, func(b []byte) error { return segment.CheckBlock(first, b) })
		e.fetchedBytes(data)
		e.blocks.end(fetches[0], data, err)
		return
	}
	data, err := e.get(ctx, object, first.Pos, length, func([]byte) error { return nil })
	e.fetchedBytes(data)
	for i, f := range fetches {
		b := blocks[i]
		if err != nil {
			e.blocks.end(f, nil, err)
			continue
		}
		block := data[b.Pos-first.Pos : b.Pos-first.Pos+b.Len]
		if segment.CheckBlock(b, block) != nil {
			e.fetch(ctx, object, blocks[i:i+1], fetches[i:i+1]) // again, alone
			continue
		}
		e.blocks.end(f, append([]byte(nil), block...), nil) // a cached block must not keep its neighbours
	}
}

func (e *Engine) fetchedBytes(data []byte) { e.metrics.fetched.Add(float64(len(data))) }

// budget bounds bytes that are held for later.
type budget struct {
	limit int64
	used  atomic.Int64
	gauge prometheus.Gauge
}

// take reserves n bytes, or tells that they would exceed the limit.
func (b *budget) take(n int64) bool {
	used := b.used.Add(n)
	if used > b.limit {
		b.used.Add(-n)
		return false
	}
	b.gauge.Set(float64(used))
	return true
}

func (b *budget) give(n int64) { b.gauge.Set(float64(b.used.Add(-n))) }
