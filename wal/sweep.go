package wal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// sweepPage is how many keys are listed at once, and how much of the destroy queue is read.
const (
	sweepPage  = 1000
	sweepQueue = 100_000
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
		for _, info := range page {
			garbage, err := s.isGarbage(ctx, info.Key)
			if err != nil {
				return err
			}
			if !garbage {
				s.result.Kept++
				continue
			}
			if err := s.Store.Delete(ctx, info.Key); err != nil {
				return err
			}
			s.result.Deleted++
			s.Logger.Info("deleted a segment that a dead writer left", "node", s.Node, "object", info.Key)
		}
		if len(page) < sweepPage {
			return nil
		}
		after = page[len(page)-1].Key
	}
}

func (s *sweeper) isGarbage(ctx context.Context, key string) (bool, error) {
	seq, ok := parseSeq(s.prefix, key)
	if !ok {
		s.Logger.Warn("an object among segments is none", "node", s.Node, "object", key)
		return false, nil
	}
	if _, referenced, err := s.Layer.ObjectMeta(ctx, key); err != nil || referenced {
		return false, err
	}
	object, err := ReadTail(ctx, s.Store, key)
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return false, nil
	case errors.Is(err, segment.ErrCorrupt):
		s.Logger.Warn("a damaged object among segments is left for an operator", "node", s.Node, "object", key, "error", err)
		return false, nil
	case err != nil:
		return false, err
	}
	if object.Header != logHeader(segment.KindSegment, s.Cluster, s.row, s.Node, seq) {
		return false, nil // a seal, or not of this log
	}
	if seq >= *s.row.SealedAt {
		return true, nil
	}
	// The queue is read after the reference was seen to be gone: whoever removed it queued the object in the same transaction.
	if doomed, err := s.isDoomed(ctx, key); err != nil || doomed {
		return false, err
	}
	for _, p := range object.Parts {
		if elsewhere, err := s.isElsewhere(ctx, key, p); err != nil || !elsewhere {
			return false, err
		}
	}
	return true, nil
}

// isDoomed tells whether the object waits to be destroyed. A queue that is too long to read counts as holding it.
func (s *sweeper) isDoomed(ctx context.Context, key string) (bool, error) {
	const never = 100 * 365 * 24 * time.Hour
	queue, err := s.Layer.DestroyQueue(ctx, sweepQueue, time.Now().Add(never))
	if err != nil || len(queue) == sweepQueue {
		return true, err
	}
	for _, d := range queue {
		if d.Object == key {
			return true, nil
		}
	}
	return false, nil
}

// isElsewhere tells whether every record of a part was trimmed or lies in other objects. A stream that is unknown shows nothing.
func (s *sweeper) isElsewhere(ctx context.Context, key string, p segment.Part) (bool, error) {
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
