package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/segment"
)

// maxPrepare is how many objects the layer prepares in one step.
const maxPrepare = 1000

// writePack writes the objects of a pack, and gives what is to be committed. Every step is tried until it succeeds; what it returns is final, or the end of ctx.
func (e *Engine) writePack(ctx context.Context, p *packPlan) (layer.Pack, error) {
	p.attempts++
	began := time.Now()
	keys := e.dataKeys(len(p.objects))
	for announced := 0; announced < len(keys); announced += maxPrepare {
		some := keys[announced:min(announced+maxPrepare, len(keys))]
		err := e.retry(ctx, "prepare data objects", never, func(ctx context.Context) error {
			return e.layer.Prepare(ctx, e.node, some, began)
		})
		if err != nil {
			return layer.Pack{}, packError(p, err)
		}
	}
	if p.attempts == 1 {
		e.cacheAdopted(p)
	}
	entries, metas, err := e.writeObjects(ctx, keys, p.objects, forPack)
	if err != nil {
		return layer.Pack{}, packError(p, err)
	}
	entries, metas = append(entries, p.entries...), append(metas, p.metas()...)
	commit := layer.Pack{Node: e.node, FirstLive: p.first, Next: p.next, Objects: metas, Entries: entries, Segments: p.keys, At: time.Now()}
	for _, sp := range p.streams {
		commit.Producers = append(commit.Producers, sp.producers...)
	}
	return commit, nil
}

// committed tells the streams of their new index entries.
func (e *Engine) committed(p *packPlan, entries []layer.ObjectEntry) {
	byStream := make(map[int64][]layer.ObjectEntry)
	for _, entry := range entries {
		byStream[entry.Stream] = append(byStream[entry.Stream], entry)
	}
	for _, sp := range p.streams {
		if e.stream(sp.stream.id) != sp.stream || sp.stream.packedEnd() >= sp.end {
			continue // closed meanwhile, by a pack of its own
		}
		added := byStream[sp.stream.id]
		slices.SortFunc(added, func(a, b layer.ObjectEntry) int { return cmp.Compare(a.Base, b.Base) })
		if p.attempts == 1 {
			e.entries.add(sp.stream.id, added)
		} else { // an earlier attempt may have been committed in part, with other objects
			e.entries.drop(sp.stream.id)
		}
		sp.stream.noteEntries(added)
	}
}

func never(error) bool { return false }

// dataKeys makes the keys of n new objects. They are random, so that no object is ever written twice with different bytes.
func (e *Engine) dataKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = wal.DataKey(e.cluster, uuid.New())
	}
	return keys
}

// purpose says why an object is written.
type purpose uint8

const (
	forPack  purpose = iota
	forMerge         // nobody has just read these records: they do not go through the block cache
)

// writeObjects encodes and uploads objects, several at a time, and gives the index entries that point into them.
func (e *Engine) writeObjects(ctx context.Context, keys []string, list []packObject, purpose purpose) ([]layer.ObjectEntry, []layer.ObjectMeta, error) {
	parts := make([][]layer.ObjectEntry, len(list))
	metas := make([]layer.ObjectMeta, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(e.options.PackParallel)
	for i := range list {
		group.Go(func() error {
			entries, size, err := e.writeObject(ctx, keys[i], list[i].entries, purpose)
			parts[i] = entries
			metas[i] = layer.ObjectMeta{Object: keys[i], Size: size, Kind: layer.DataObject}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	var entries []layer.ObjectEntry
	for _, p := range parts {
		entries = append(entries, p...)
	}
	return entries, metas, nil
}

// writeObject uploads one object. The blocks of a pack go into the block cache: whoever read them from the log cache will read them there.
func (e *Engine) writeObject(ctx context.Context, key string, entries []segment.Entry, purpose purpose) ([]layer.ObjectEntry, int64, error) {
	header := segment.Header{Kind: segment.KindData, Cluster: e.cluster, Node: e.node.ID, NodeEpoch: e.node.Epoch}
	body, parts := segment.Encode(header, entries, segment.Options{BlockSize: e.options.BlockBytes})
	err := e.retry(ctx, "write data object "+key, never, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, e.options.PutTimeout)
		defer cancel()
		return e.store.Put(ctx, key, body)
	})
	if err != nil {
		return nil, 0, err
	}
	if purpose == forMerge {
		e.metrics.merged.Add(float64(len(body)))
	} else {
		e.metrics.packed.Add(float64(len(body)))
	}
	for _, part := range parts {
		if err := e.cachePart(key, body, part, purpose); err != nil {
			return nil, 0, err
		}
	}
	return wal.ObjectEntries(key, parts), int64(len(body)), nil
}

// cachePart puts the index of a part of an object into the cache, and what comes of the log its blocks.
func (e *Engine) cachePart(key string, body []byte, part segment.Part, purpose purpose) error {
	index, err := segment.ParseIndex(body[part.IndexPos:part.IndexPos+part.IndexLen], part)
	if err != nil {
		return fmt.Errorf("index of the object just made: %w", segment.Named(err, key))
	}
	e.indexes.put(key, part.IndexPos, index.Blocks)
	if purpose == forPack {
		for _, b := range index.Blocks {
			e.blocks.putCopy(blockKey{key, b.Pos}, body[b.Pos:b.Pos+b.Len])
		}
	}
	return nil
}

// commitPack commits, again and again while the layer cannot be reached. A commit that was answered with ErrWALMoved may be our own, of which the
// answer was lost: then first live is where it would have moved to.
func (e *Engine) commitPack(ctx context.Context, p layer.Pack) error {
	final := func(err error) bool {
		return errors.Is(err, layer.ErrNotPrepared) || errors.Is(err, layer.ErrWALMoved) || errors.Is(err, layer.ErrWALSealed) ||
			errors.Is(err, layer.ErrGap) || errors.Is(err, layer.ErrStraddles) || errors.Is(err, layer.ErrInvalid) ||
			errors.Is(err, layer.ErrStaleStream) || errors.Is(err, layer.ErrStreamEnded) || errors.Is(err, layer.ErrCorruptRow)
	}
	err := e.retry(ctx, "commit pack", final, func(ctx context.Context) error {
		err := e.layer.CommitPack(ctx, p)
		if err != nil {
			e.metrics.PackFailures.Inc()
		}
		return err
	})
	if !errors.Is(err, layer.ErrWALMoved) {
		return err
	}
	var row layer.WALRow
	if readErr := e.retry(ctx, "read the log's row", never, func(ctx context.Context) (err error) {
		row, err = e.layer.WAL(ctx, e.node)
		return err
	}); readErr != nil {
		return errors.Join(err, readErr)
	}
	if row.FirstLive == p.Next && row.SealedAt == nil {
		return nil
	}
	return err
}
