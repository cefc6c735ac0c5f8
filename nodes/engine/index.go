package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/maypok86/otter/v2"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/segment"
)

// indexCache has the block indexes of what streams have in objects, and the reads of indexes that are under way.
type indexCache struct {
	cache *otter.Cache[blockKey, []segment.Block]

	mu      sync.Mutex
	fetches map[blockKey]*indexFetch
}

// indexFetch is an index that is being read. done is closed when blocks or err is set.
type indexFetch struct {
	done   chan struct{}
	blocks []segment.Block
	err    error
}

func newIndexCache(limit int64) (*indexCache, error) {
	cache, err := otter.New(&otter.Options[blockKey, []segment.Block]{
		MaximumWeight: uint64(limit),
		Weigher:       func(k blockKey, v []segment.Block) uint32 { return uint32(len(v)*56 + len(k.object) + overhead) },
	})
	if err != nil {
		return nil, fmt.Errorf("cache of block indexes: %w", err)
	}
	return &indexCache{cache: cache, fetches: make(map[blockKey]*indexFetch)}, nil
}

func (c *indexCache) close() { c.cache.StopAllGoroutines() }

func (c *indexCache) put(object string, pos int64, blocks []segment.Block) {
	c.cache.Set(blockKey{object, pos}, blocks)
}

// index gives the blocks of what an entry points to.
func (e *Engine) index(ctx context.Context, entry layer.ObjectEntry) ([]segment.Block, error) {
	blocks, f := e.startIndex(entry)
	if f == nil {
		e.metrics.indexHit.Inc()
		return blocks, nil
	}
	e.metrics.indexMiss.Inc()
	select {
	case <-f.done:
		return f.blocks, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// startIndex gives an index that is cached, or the read of it that is under way: one, however many ask.
func (e *Engine) startIndex(entry layer.ObjectEntry) ([]segment.Block, *indexFetch) {
	key := blockKey{entry.Object, entry.IndexPos}
	c := e.indexes
	if blocks, ok := c.cache.GetIfPresent(key); ok {
		return blocks, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.fetches[key]; f != nil {
		return nil, f
	}
	if blocks, ok := c.cache.GetIfPresent(key); ok { // it landed in between
		return blocks, nil
	}
	f := &indexFetch{done: make(chan struct{}), err: errStopped}
	started := e.run("fetch index", func(ctx context.Context) {
		f.blocks, f.err = e.readIndex(ctx, entry)
		if f.err == nil {
			c.cache.Set(key, f.blocks)
		}
		c.mu.Lock()
		delete(c.fetches, key)
		c.mu.Unlock()
		close(f.done)
	})
	if !started {
		close(f.done)
		return nil, f
	}
	c.fetches[key] = f
	return nil, f
}

// maxIndex bounds what is read as an index of blocks: no pack or segment makes a larger one.
const maxIndex = 64 << 20

func (e *Engine) readIndex(ctx context.Context, entry layer.ObjectEntry) ([]segment.Block, error) {
	if entry.IndexLen <= 0 || entry.IndexLen > maxIndex {
		return nil, fmt.Errorf("index of stream %d in object %s has %d bytes", entry.Stream, entry.Object, entry.IndexLen)
	}
	if !e.blocks.slot(ctx) {
		return nil, errStopped
	}
	defer e.blocks.release()
	var index segment.Index
	data, err := e.get(ctx, entry.Object, entry.IndexPos, entry.IndexLen, func(b []byte) (err error) {
		index, err = segment.ParseIndex(b, wal.PartOf(entry))
		return err
	})
	e.fetchedBytes(data)
	if err != nil {
		return nil, fmt.Errorf("index of stream %d: %w", entry.Stream, err)
	}
	return index.Blocks, nil
}
