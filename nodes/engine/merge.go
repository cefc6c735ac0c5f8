package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/segment"
)

// smallEntries is what the merging loop remembers of a stream. Guarded by the stream's mu.
type smallEntries struct {
	seen  bool  // the index was looked through once
	count int   // small entries at or after from, at least
	from  int64 // below it nothing can be merged any more
}

// maxMerge is how many entries the layer replaces in one step.
const maxMerge = 500

// mergeRun is adjacent small index entries of one stream that will become one.
type mergeRun struct {
	stream *Stream
	old    []layer.ObjectEntry
	bytes  int64
}

// mergeLoop replaces small data objects by larger ones: every pack gives each stream one more index entry, and a reader of many small
// entries waits for the store at each.
func (e *Engine) mergeLoop(ctx context.Context) {
	e.every(ctx, "merge", e.options.MergeInterval, e.mergeAll)
}

// mergeAll goes through the streams once. The runs that it finds share objects, as small streams do in packs.
func (e *Engine) mergeAll(ctx context.Context) error {
	var runs []mergeRun
	var bytes int64
	var errs []error
	flush := func() error {
		err := e.merge(ctx, runs)
		runs, bytes = nil, 0
		return err
	}
	for _, s := range e.Streams() {
		found, err := s.mergeRuns(ctx)
		for _, run := range found {
			// Two runs of one stream would become one part of an object.
			if n := len(runs); n > 0 && (bytes+run.bytes > e.options.MergeObjectBytes || runs[n-1].stream == run.stream) {
				err = errors.Join(err, flush())
			}
			runs, bytes = append(runs, run), bytes+run.bytes
		}
		if terminal(err) || ctx.Err() != nil {
			return err
		}
		if err != nil && len(errs) < 10 {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, flush())...)
}

// mergeRuns finds what is worth merging in a stream.
func (s *Stream) mergeRuns(ctx context.Context) ([]mergeRun, error) {
	o := s.engine.options
	s.mu.Lock()
	small, start, packed, phase := s.small, s.start, s.packed, s.phase
	s.mu.Unlock()
	if phase != serving || (small.seen && small.count < o.MergeRun) {
		return nil, nil
	}
	var found []mergeRun
	run := mergeRun{stream: s}
	next := smallEntries{seen: true, from: max(small.from, start)}
	finish := func() {
		if run.worth(o) {
			found = append(found, run)
		}
		run = mergeRun{stream: s}
	}
	err := s.engine.eachEntry(ctx, s.id, next.from, packed, func(entry layer.ObjectEntry) (bool, error) {
		if !s.engine.small(entry) {
			finish()
			next.from, next.count = entry.End, 0
			return true, nil
		}
		if run.bytes+entry.Len > o.MergeObjectBytes || len(run.old) == maxMerge {
			finish()
			next.from, next.count = entry.Base, 0
		}
		run.old, run.bytes = append(run.old, entry), run.bytes+entry.Len
		next.count++
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	if run.worth(o) {
		next.count = 1 // what it becomes
	} else {
		next.count = min(next.count, o.MergeRun-1) // looked at again when more come
	}
	finish()
	s.mu.Lock()
	defer s.mu.Unlock()
	next.count += max(s.small.count-small.count, 0) // committed meanwhile
	s.small = next
	return found, nil
}

// worth drops leading entries that outweigh all that follow, since they would be written again for little, and tells whether what is left
// makes a merge.
func (r *mergeRun) worth(o Options) bool {
	for len(r.old) > 1 && r.old[0].Len > r.bytes-r.old[0].Len {
		r.bytes -= r.old[0].Len
		r.old = r.old[1:]
	}
	return len(r.old) >= o.MergeRun || (len(r.old) > 1 && r.bytes >= o.MergeObjectBytes/2)
}

// merge writes one object that has all runs, and replaces the index entries of each.
func (e *Engine) merge(ctx context.Context, runs []mergeRun) error {
	if len(runs) == 0 {
		return nil
	}
	began := time.Now()
	var object packObject
	for _, run := range runs {
		for _, old := range run.old {
			var entries []segment.Entry
			err := e.retry(ctx, "read what is merged", unreadable, func(ctx context.Context) (err error) {
				entries, err = e.readEntry(ctx, run.stream, old)
				return err
			})
			if err != nil {
				run.stream.mergeAgain()
				return fmt.Errorf("merge entry [%d, %d) of stream %d: %w", old.Base, old.End, old.Stream, err)
			}
			object.entries = append(object.entries, entries...)
			object.bytes += old.Len
		}
	}
	keys := e.dataKeys(1)
	if err := e.layer.Prepare(ctx, e.node, keys, time.Now()); err != nil {
		return fmt.Errorf("merge: prepare: %w", err)
	}
	merged, metas, err := e.writeObjects(ctx, keys, []packObject{object}, forMerge)
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	err = e.replaceEntries(ctx, runs, merged, metas[0])
	pace := time.Duration(float64(object.bytes) / float64(e.options.MergeRate) * float64(time.Second))
	pause(ctx, pace-time.Since(began))
	return err
}

// unreadable tells whether trying again would not help.
func unreadable(err error) bool {
	var missing *MissingObjectError
	return errors.Is(err, segment.ErrCorrupt) || errors.As(err, &missing) || errors.Is(err, errStopped)
}

// replaceEntries commits the merged entries, stream by stream. A stream that has changed in between keeps its entries.
func (e *Engine) replaceEntries(ctx context.Context, runs []mergeRun, merged []layer.ObjectEntry, object layer.ObjectMeta) error {
	var errs []error
	for _, run := range runs {
		entry, ok := covering(merged, run)
		if !ok {
			return fmt.Errorf("merge: object %s does not hold offsets [%d, %d) of stream %d as one entry", object.Object, run.old[0].Base, run.old[len(run.old)-1].End, run.stream.id)
		}
		err := e.layer.MergeEntries(ctx, e.node, run.stream.id, run.stream.epoch, run.old, entry, object, time.Now())
		switch {
		case err == nil:
			e.entries.drop(run.stream.id)
			e.metrics.MergedEntries.Add(float64(len(run.old)))
		case terminal(err):
			return err
		case errors.Is(err, layer.ErrEntriesChanged), errors.Is(err, layer.ErrStaleStream), errors.Is(err, layer.ErrStreamNotFound):
			run.stream.mergeAgain()
		default:
			run.stream.mergeAgain()
			errs = append(errs, fmt.Errorf("merge %d entries of stream %d: %w", len(run.old), run.stream.id, err))
		}
	}
	return errors.Join(errs...)
}

// covering finds the merged entry of a run.
func covering(merged []layer.ObjectEntry, run mergeRun) (layer.ObjectEntry, bool) {
	for _, entry := range merged {
		if entry.Stream == run.stream.id && entry.Base == run.old[0].Base && entry.End == run.old[len(run.old)-1].End {
			return entry, true
		}
	}
	return layer.ObjectEntry{}, false
}

// mergeAgain has the stream looked through once more.
func (s *Stream) mergeAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.small = smallEntries{from: 0}
}

// readEntry reads all batches of an index entry, past the block cache, and checks them.
func (e *Engine) readEntry(ctx context.Context, s *Stream, entry layer.ObjectEntry) ([]segment.Entry, error) {
	blocks, err := e.index(ctx, entry)
	if err != nil {
		return nil, err
	}
	data, err := e.get(ctx, entry.Object, entry.Pos, entry.Len, func(b []byte) error { return checkBlocks(entry, blocks, b) })
	if err != nil {
		return nil, s.missing(entry, err)
	}
	e.metrics.mergeRead.Add(float64(len(data)))
	var entries []segment.Entry
	for _, block := range blocks {
		body := data[block.Pos-entry.Pos : block.Pos-entry.Pos+block.Len]
		for len(body) > 0 {
			b, rest, err := nextBatch(entry.Object, block, body)
			if err != nil {
				return nil, err
			}
			body = rest
			entries = append(entries, segment.Entry{
				Stream: s.id, Epoch: s.epoch, Base: b.BaseOffset, Last: b.LastOffset(), MaxTimestamp: b.MaxTimestamp,
				Producer: segment.Producer{ID: segment.NoProducer}, Data: b.Raw,
			})
		}
	}
	return entries, nil
}

// checkBlocks checks all blocks of an index entry.
func checkBlocks(entry layer.ObjectEntry, blocks []segment.Block, data []byte) error {
	for _, block := range blocks {
		if err := segment.CheckBlock(block, data[block.Pos-entry.Pos:block.Pos-entry.Pos+block.Len]); err != nil {
			return err
		}
	}
	return nil
}
