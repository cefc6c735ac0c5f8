package wal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
)

var (
	errLayerDown = fmt.Errorf("fake layer: %w", kv.ErrUnavailable)
	errLayerLost = fmt.Errorf("fake layer: %w", kv.ErrCommitUnknown)
)

// fakeLayer keeps the rows that the log and its recovery touch, with the layer's rules. Hooks see each call by its name.
type fakeLayer struct {
	mu       sync.Mutex // guards what follows
	node     map[int64]*layer.NodeRow
	wals     map[layer.NodeRef]*layer.WALRow
	inline   map[layer.NodeRef]map[int64][]byte
	open     map[int64]layer.NodeRef // streams
	starts   map[int64]int64
	entries  map[int64][]layer.ObjectEntry
	states   map[producerKey]layer.ProducerState
	prepared map[string]bool
	meta     map[string]layer.ObjectMeta
	doomed   []layer.Doomed
	calls    map[string]int
	// before runs without the lock; its error is the call's, which then has no effect. after: likewise, with the effect.
	before, after func(ctx context.Context, op string) error
}

func newFakeLayer() *fakeLayer {
	return &fakeLayer{
		node: map[int64]*layer.NodeRow{}, wals: map[layer.NodeRef]*layer.WALRow{}, inline: map[layer.NodeRef]map[int64][]byte{},
		open: map[int64]layer.NodeRef{}, starts: map[int64]int64{}, entries: map[int64][]layer.ObjectEntry{}, states: map[producerKey]layer.ProducerState{},
		prepared: map[string]bool{}, meta: map[string]layer.ObjectMeta{}, calls: map[string]int{},
	}
}

func (l *fakeLayer) register(id int64, mode layer.FenceMode) layer.WALRow {
	l.mu.Lock()
	defer l.mu.Unlock()
	row := l.node[id]
	if row == nil {
		row = &layer.NodeRow{ID: id}
		l.node[id] = row
	}
	row.Epoch, row.Fenced = row.Epoch+1, false
	ref := layer.NodeRef{ID: id, Epoch: row.Epoch}
	l.wals[ref] = &layer.WALRow{Node: ref, Incarnation: uuid.New(), Mode: mode, FirstLive: layer.FirstSegment}
	l.inline[ref] = map[int64][]byte{}
	return *l.wals[ref]
}

func (l *fakeLayer) fence(ref layer.NodeRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.node[ref.ID].Epoch == ref.Epoch {
		l.node[ref.ID].Fenced = true
	}
}

func (l *fakeLayer) openStreams(ref layer.NodeRef, streams ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range streams {
		l.open[s] = ref
	}
}

func (l *fakeLayer) setHooks(before, after func(ctx context.Context, op string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before, l.after = before, after
}

func (l *fakeLayer) count(op string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[op]
}

func (l *fakeLayer) row(ref layer.NodeRef) layer.WALRow {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.wals[ref]
}

// run is one transaction.
func (l *fakeLayer) run(ctx context.Context, op string, effect func() error) error {
	l.mu.Lock()
	l.calls[op]++
	before, after := l.before, l.after
	l.mu.Unlock()
	if before != nil {
		if err := before(ctx, op); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	err := effect()
	l.mu.Unlock()
	if after != nil {
		if lost := after(ctx, op); lost != nil {
			return lost
		}
	}
	return err
}

func (l *fakeLayer) alive(ref layer.NodeRef) error {
	row := l.node[ref.ID]
	switch {
	case row == nil:
		return layer.ErrNodeNotFound
	case row.Epoch != ref.Epoch:
		return layer.ErrReplaced
	case row.Fenced:
		return layer.ErrFenced
	}
	return nil
}

func (l *fakeLayer) WAL(ctx context.Context, node layer.NodeRef) (row layer.WALRow, err error) {
	err = l.run(ctx, "WAL", func() error {
		found := l.wals[node]
		if found == nil {
			return layer.ErrWALNotFound
		}
		row = *found
		return nil
	})
	return row, err
}

func (l *fakeLayer) PutInline(ctx context.Context, node layer.NodeRef, seq int64, segment []byte) error {
	return l.run(ctx, "PutInline", func() error {
		if len(segment) > layer.MaxInlineSegment {
			return layer.ErrInvalid
		}
		if err := l.alive(node); err != nil {
			return err
		}
		l.inline[node][seq] = slices.Clone(segment)
		return nil
	})
}

func (l *fakeLayer) VerifyNode(ctx context.Context, node layer.NodeRef) error {
	return l.run(ctx, "VerifyNode", func() error { return l.alive(node) })
}

func (l *fakeLayer) ConfirmFenced(ctx context.Context, node layer.NodeRef) error {
	return l.run(ctx, "ConfirmFenced", func() error {
		if l.alive(node) == nil {
			return layer.ErrNotFenced
		}
		return nil
	})
}

func (l *fakeLayer) InlineSegments(ctx context.Context, node layer.NodeRef, from int64, limit int) (segments []layer.InlineSegment, err error) {
	err = l.run(ctx, "InlineSegments", func() error {
		var seqs []int64
		for seq := range l.inline[node] {
			if seq >= from {
				seqs = append(seqs, seq)
			}
		}
		slices.Sort(seqs)
		size := 0
		for _, seq := range seqs {
			if size >= limit {
				break
			}
			segments = append(segments, layer.InlineSegment{Seq: seq, Data: slices.Clone(l.inline[node][seq])})
			size += len(l.inline[node][seq])
		}
		return nil
	})
	return segments, err
}

func (l *fakeLayer) Prepare(ctx context.Context, node layer.NodeRef, objects []string, _ time.Time) error {
	return l.run(ctx, "Prepare", func() error {
		if err := l.alive(node); err != nil {
			return err
		}
		for _, o := range objects {
			l.prepared[o] = true
		}
		return nil
	})
}

// dead checks what every command of a recoverer does.
func (l *fakeLayer) dead(by, dead layer.NodeRef, at int64) (*layer.WALRow, error) {
	if err := l.alive(by); err != nil {
		return nil, err
	}
	if l.alive(dead) == nil {
		return nil, layer.ErrNotFenced
	}
	row := l.wals[dead]
	switch {
	case row.SealedAt != nil:
		return row, layer.ErrWALSealed
	case row.FirstLive != at:
		return row, layer.ErrWALMoved
	}
	return row, nil
}

func (l *fakeLayer) end(stream int64) int64 {
	entries := l.entries[stream]
	if len(entries) == 0 {
		return l.starts[stream]
	}
	return entries[len(entries)-1].End
}

func (l *fakeLayer) Adopt(ctx context.Context, by layer.NodeRef, a layer.Adoption) error {
	return l.run(ctx, "Adopt", func() error { return l.adopt(by, a, len(a.Entries)) })
}

// adopt takes the first n entries; all of them also move the first live number.
func (l *fakeLayer) adopt(by layer.NodeRef, a layer.Adoption, n int) error {
	row, err := l.dead(by, a.Dead, a.Seq)
	if err != nil {
		return err
	}
	metas := map[string]layer.ObjectMeta{}
	for _, o := range a.Objects {
		metas[o.Object] = o
		if o.Kind == layer.DataObject && !l.prepared[o.Object] && l.meta[o.Object].Refs == 0 {
			return layer.ErrNotPrepared
		}
	}
	take := func(e layer.ObjectEntry) bool { return l.open[e.Stream] == a.Dead && e.End > l.end(e.Stream) }
	for _, e := range a.Entries {
		if end := l.end(e.Stream); take(e) && e.Base < end {
			return &layer.StraddleError{Entry: e, DurableEnd: end}
		}
	}
	for _, e := range a.Entries[:n] {
		if !take(e) {
			continue
		}
		if e.Base > l.end(e.Stream) {
			return fmt.Errorf("%w: %+v, durable end %d", layer.ErrGap, e, l.end(e.Stream))
		}
		l.entries[e.Stream] = append(l.entries[e.Stream], e)
		meta := metas[e.Object]
		meta.Refs = l.meta[meta.Object].Refs + 1
		l.meta[meta.Object] = meta
		delete(l.prepared, meta.Object)
	}
	if n < len(a.Entries) {
		return nil
	}
	for _, s := range a.Producers {
		key := producerKey{s.Stream, s.Producer}
		old := l.states[key]
		if old.Epoch == s.Epoch {
			for _, b := range s.Batches {
				if len(old.Batches) == 0 || b.Base > old.Batches[len(old.Batches)-1].Base {
					old.Batches = append(old.Batches, b)
				}
			}
			s.Batches = old.Batches[max(0, len(old.Batches)-layer.MaxProducerBatches):]
		}
		l.states[key] = s
	}
	for _, o := range a.Objects {
		if l.meta[o.Object].Refs == 0 {
			l.doomed = append(l.doomed, layer.Doomed{Object: o.Object})
		}
	}
	row.FirstLive = a.Next
	for seq := range l.inline[a.Dead] {
		if seq < a.Next {
			delete(l.inline[a.Dead], seq)
		}
	}
	return nil
}

func (l *fakeLayer) SealWAL(ctx context.Context, by, dead layer.NodeRef, at int64) error {
	return l.run(ctx, "SealWAL", func() error {
		row, err := l.dead(by, dead, at)
		if errors.Is(err, layer.ErrWALSealed) && *row.SealedAt == at {
			return nil
		}
		if err == nil {
			row.SealedAt = &at
		}
		return err
	})
}

// finish closes the streams and marks the log done, as the caller of Recover does.
func (l *fakeLayer) finish(dead layer.NodeRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, by := range l.open {
		if by == dead {
			delete(l.open, s)
		}
	}
	l.wals[dead].Done = true
	clear(l.inline[dead])
}

func (l *fakeLayer) Stream(ctx context.Context, id int64) (row layer.StreamRow, err error) {
	err = l.run(ctx, "Stream", func() error {
		if _, ok := l.entries[id]; !ok {
			return layer.ErrStreamNotFound
		}
		row = layer.StreamRow{ID: id, Start: l.starts[id]}
		return nil
	})
	return row, err
}

func (l *fakeLayer) ObjectEntries(ctx context.Context, stream, from int64, limit int) (entries []layer.ObjectEntry, err error) {
	err = l.run(ctx, "ObjectEntries", func() error {
		for _, e := range l.entries[stream] {
			if e.End > from && len(entries) < limit {
				entries = append(entries, e)
			}
		}
		return nil
	})
	return entries, err
}

func (l *fakeLayer) ObjectMeta(ctx context.Context, object string) (meta layer.ObjectMeta, ok bool, err error) {
	err = l.run(ctx, "ObjectMeta", func() error {
		meta, ok = l.meta[object]
		return nil
	})
	return meta, ok, err
}

func (l *fakeLayer) DestroyQueue(ctx context.Context, limit int, _ time.Time) (doomed []layer.Doomed, err error) {
	err = l.run(ctx, "DestroyQueue", func() error {
		doomed = slices.Clone(l.doomed[:min(limit, len(l.doomed))])
		return nil
	})
	return doomed, err
}
