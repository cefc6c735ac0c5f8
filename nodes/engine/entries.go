package engine

import (
	"context"
	"fmt"
	"sort"

	"github.com/maypok86/otter/v2"

	"github.com/varvedb/varve/layer"
)

const (
	entriesPage = 64 // index entries that are read at once
	pagesKept   = 4  // runs of entries kept for each stream
)

// entryCache has index entries of streams that are being read: for each stream a few runs of consecutive entries.
type entryCache struct {
	cache *otter.Cache[int64, []entryRun]
}

// entryRun is consecutive index entries. It is never changed.
type entryRun []layer.ObjectEntry

func (r entryRun) from() int64 { return r[0].Base }
func (r entryRun) to() int64   { return r[len(r)-1].End }

// find gives the entry that holds offset; the run must have it.
func (r entryRun) find(offset int64) layer.ObjectEntry {
	return r[sort.Search(len(r), func(i int) bool { return r[i].End > offset })]
}

func newEntryCache(limit int64) (*entryCache, error) {
	cache, err := otter.New(&otter.Options[int64, []entryRun]{
		MaximumWeight: uint64(limit),
		Weigher: func(_ int64, runs []entryRun) uint32 {
			weight := overhead
			for _, r := range runs {
				weight += len(r) * 200
			}
			return uint32(weight)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of index entries: %w", err)
	}
	return &entryCache{cache}, nil
}

func (c *entryCache) find(stream, offset int64) (layer.ObjectEntry, bool) {
	runs, _ := c.cache.GetIfPresent(stream)
	for _, r := range runs {
		if r.from() <= offset && offset < r.to() {
			return r.find(offset), true
		}
	}
	return layer.ObjectEntry{}, false
}

// put keeps a run that was read, in place of the oldest when there are many. Racing puts may lose one of them, which costs a read.
func (c *entryCache) put(stream int64, run entryRun) {
	runs, _ := c.cache.GetIfPresent(stream)
	kept := make([]entryRun, 0, pagesKept)
	kept = append(kept, run)
	for _, r := range runs {
		if len(kept) < pagesKept && (r.to() <= run.from() || r.from() >= run.to()) {
			kept = append(kept, r)
		}
	}
	c.cache.Set(stream, kept)
}

// add keeps entries that were just committed: what was packed last is wanted most, and can then be read while the metadata is away.
func (c *entryCache) add(stream int64, entries []layer.ObjectEntry) {
	if len(entries) == 0 {
		return
	}
	runs, _ := c.cache.GetIfPresent(stream)
	for _, r := range runs {
		if r.to() == entries[0].Base {
			extended := append(append(entryRun(nil), r...), entries...)
			c.put(stream, extended[max(0, len(extended)-entriesPage):])
			return
		}
	}
	c.put(stream, append(entryRun(nil), entries...))
}

func (c *entryCache) drop(stream int64) { c.cache.Invalidate(stream) }

func (c *entryCache) close() { c.cache.StopAllGoroutines() }

// entry gives the index entry that holds offset of s. Without one, it tells how the stream stands: see gone.
func (e *Engine) entry(ctx context.Context, s *Stream, offset int64) (layer.ObjectEntry, error) {
	if entry, ok := e.entries.find(s.id, offset); ok {
		e.metrics.entriesHit.Inc()
		return entry, nil
	}
	e.metrics.entriesMiss.Inc()
	lookup, cancel := context.WithTimeout(ctx, e.options.LookupTimeout)
	defer cancel()
	list, err := e.layer.ObjectEntries(lookup, s.id, offset, entriesPage)
	if err != nil {
		if timedOut(ctx, err) {
			return layer.ObjectEntry{}, err
		}
		return layer.ObjectEntry{}, fmt.Errorf("%w: index of stream %d from offset %d: %w", ErrUnavailable, s.id, offset, err)
	}
	if len(list) == 0 || list[0].Base > offset {
		return layer.ObjectEntry{}, s.gone(offset)
	}
	if err := consecutive(list); err != nil {
		return layer.ObjectEntry{}, err
	}
	e.entries.put(s.id, list)
	return list[0], nil
}

// consecutive refuses an index with a hole: a read across it would skip records silently.
func consecutive(list []layer.ObjectEntry) error {
	for i := 1; i < len(list); i++ {
		if list[i].Base != list[i-1].End {
			return fmt.Errorf("index of stream %d has no records between offsets %d and %d", list[i].Stream, list[i-1].End, list[i].Base)
		}
	}
	return nil
}

// gone says why the index has no entry for an offset that was in range when the read began: it was trimmed, or the stream is served elsewhere.
func (s *Stream) gone(offset int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase == closed:
		return fmt.Errorf("%w: %v", ErrNotOpen, s)
	case offset < s.start:
		return &OffsetOutOfRange{Stream: s.id, Offset: offset, Start: s.start, End: s.end}
	}
	return fmt.Errorf("index of stream %d has no entry for offset %d, which lies in [%d, %d)", s.id, offset, s.start, s.packed)
}
