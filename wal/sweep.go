package wal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

// SweepOptions say which log is swept.
type SweepOptions struct {
	Layer   Layer
	Store   objects.Store
	Cluster string
	Node    layer.NodeRef // whose log is done: recovered, its streams closed, FinishWAL
	Logger  *slog.Logger
}

// SweepResult counts the objects that stand at keys of the log.
type SweepResult struct {
	Deleted int
	Kept    int // seals, segments that the index refers to or that wait in the destroy queue, and what is not known to be garbage
}

// ErrNotDone: the log is not finished, so that nothing of it is garbage yet.
var ErrNotDone = errors.New("write-ahead log is not done")

// sweepPage is how many keys are listed at once, and sweepQueue how much of the destroy queue is read, all that was queued before never.
const (
	sweepPage  = 1000
	sweepQueue = 10_000
	never      = 100 * 365 * 24 * time.Hour
)

// Sweep deletes what late requests of a dead writer left in the store: segments at or after the seal, which were never acknowledged, and
// segments before it whose records are all elsewhere or trimmed. Late requests may still come, so it is run more than once.
//
// It deletes only what the metadata shows to be garbage, never because metadata is missing: without the log's row, or while that does not
// say done, it deletes nothing (layer.ErrWALNotFound, ErrNotDone). Seals, damaged objects and objects of others stay.
func Sweep(ctx context.Context, o SweepOptions) (SweepResult, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	row, err := o.Layer.WAL(ctx, o.Node)
	if err != nil {
		return SweepResult{}, fmt.Errorf("sweep write-ahead log of node %s: %w", o.Node, err)
	}
	if !row.Done || row.SealedAt == nil {
		return SweepResult{}, fmt.Errorf("sweep write-ahead log of node %s: %w", o.Node, ErrNotDone)
	}
	s := &sweeper{SweepOptions: o, row: row, prefix: LogPrefix(o.Cluster, o.Node, row.Incarnation)}
	if err := s.run(ctx); err != nil {
		return s.result, fmt.Errorf("sweep write-ahead log of node %s: %w", o.Node, err)
	}
	return s.result, nil
}

type sweeper struct {
	SweepOptions
	row    layer.WALRow
	prefix string
	result SweepResult
}

func (s *sweeper) run(ctx context.Context) error {
	for after := ""; ; {
		page, err := s.Store.List(ctx, s.prefix, after, sweepPage)
		if err != nil {
			return err
		}
		garbage, err := s.garbage(ctx, page)
		if err != nil {
			return err
		}
		s.result.Kept += len(page) - len(garbage)
		for _, key := range garbage {
			if err := s.Store.Delete(ctx, key); err != nil {
				return err
			}
			s.result.Deleted++
			s.Logger.Info("deleted a segment that a dead writer left", "node", s.Node, "object", key)
		}
		if len(page) < sweepPage {
			return nil
		}
		after = page[len(page)-1].Key
	}
}

// garbage picks the keys that may be deleted.
func (s *sweeper) garbage(ctx context.Context, page []objects.Info) (keys []string, err error) {
	freed := map[string]bool{} // known to be elsewhere, but perhaps still read, until the destroy queue says
	for _, info := range page {
		object, seq, err := s.unreferenced(ctx, info.Key)
		if err != nil {
			return nil, err
		}
		if object == nil {
			continue
		}
		if seq >= *s.row.SealedAt {
			keys = append(keys, info.Key)
			continue
		}
		elsewhere, err := s.isElsewhere(ctx, info.Key, object.Parts)
		if err != nil {
			return nil, err
		}
		if elsewhere {
			freed[info.Key] = true
		}
	}
	if len(freed) == 0 {
		return keys, nil
	}
	// The queue is read after the references were seen to be gone: whoever removed one queued the object in the same transaction.
	queue, err := s.Layer.DestroyQueue(ctx, sweepQueue, time.Now().Add(never))
	if err != nil || len(queue) == sweepQueue { // too long to know; there will be another sweep
		return keys, err
	}
	for _, d := range queue {
		delete(freed, d.Object)
	}
	return append(keys, slices.Sorted(maps.Keys(freed))...), nil
}

// unreferenced reads the tail of a segment of this log that the index does not refer to. It gives no object for everything else.
func (s *sweeper) unreferenced(ctx context.Context, key string) (*segment.Object, int64, error) {
	seq, ok := parseSeq(s.prefix, key)
	if !ok {
		s.Logger.Warn("an object among segments is none", "node", s.Node, "object", key)
		return nil, 0, nil
	}
	if _, referenced, err := s.Layer.ObjectMeta(ctx, key); err != nil || referenced {
		return nil, 0, err
	}
	object, err := ReadTail(ctx, s.Store, key)
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return nil, 0, nil
	case errors.Is(err, segment.ErrCorrupt):
		s.Logger.Warn("a damaged object among segments is left for an operator", "node", s.Node, "object", key, "error", err)
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	case object.Header != logHeader(segment.KindSegment, s.Cluster, s.row, s.Node, seq):
		return nil, 0, nil // a seal, or not of this log
	}
	return object, seq, nil
}

// isElsewhere tells whether every record of an object was trimmed or lies in other objects.
func (s *sweeper) isElsewhere(ctx context.Context, key string, parts []segment.Part) (bool, error) {
	for _, p := range parts {
		if elsewhere, err := s.isPartElsewhere(ctx, key, p); err != nil || !elsewhere {
			return false, err
		}
	}
	return true, nil
}

// isPartElsewhere tells whether every record of a part was trimmed or lies in other objects. A stream that is unknown shows nothing.
func (s *sweeper) isPartElsewhere(ctx context.Context, key string, p segment.Part) (bool, error) {
	stream, err := s.Layer.Stream(ctx, p.Stream)
	if errors.Is(err, layer.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for at := max(p.Base, stream.Start); at < p.End; {
		entries, err := s.Layer.ObjectEntries(ctx, p.Stream, at, 1)
		if err != nil {
			return false, err
		}
		if len(entries) == 0 || entries[0].Base > at || entries[0].Object == key {
			return false, nil
		}
		at = entries[0].End
	}
	return true, nil
}
