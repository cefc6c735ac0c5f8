package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
)

// lifecycleLimit is how many rows one transaction of the life cycle loop takes.
const lifecycleLimit = 256

// lifecycleStep is the step of the life cycle loop. Every part of it runs however the others fare.
func (n *Node) lifecycleStep(ctx context.Context, lease layer.LeaseRef, trimmer *logTrimmer) error {
	now := time.Now()
	var errs []error
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"tables", func() error { return n.tendTables(ctx, now) }},
		{"destroy streams", func() error { return n.destroyStreams(ctx, lease) }},
		{"expire prepared objects", func() error { return n.expirePrepared(ctx, lease, now) }},
		{"destroy objects", func() error { return n.destroyObjects(ctx, lease, now) }},
		{"trim log", func() error { return n.trimLog(ctx, lease, trimmer, now) }},
	} {
		if err := part.run(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", part.name, err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

// tendTables makes the buckets that a crash kept tables from getting, and deletes tables whose time is over.
func (n *Node) tendTables(ctx context.Context, now time.Time) error {
	for _, row := range n.view.Tables() {
		if err := n.tendTable(ctx, row, now); err != nil {
			return fmt.Errorf("table %q: %w", row.Name, err)
		}
	}
	return nil
}

func (n *Node) tendTable(ctx context.Context, row layer.TableRow, now time.Time) error {
	if at, ok := expiry(row); ok && !now.Before(at) {
		err := n.deleteTable(ctx, row, "expired at "+at.UTC().Format(time.RFC3339))
		if errors.Is(err, ErrUnknownTable) {
			err = nil
		}
		return err
	}
	if row.State == layer.TableActive && row.Buckets < row.Target && now.Sub(row.CreatedAt) > unfinishedAge {
		n.logger.Info("table is unfinished", "table", row.Name, "buckets", row.Buckets, "target", row.Target)
		_, err := n.growTable(ctx, row, row.Target)
		return err
	}
	return nil
}

// unfinishedAge is how old a table is before the lease holder does not take it for one that is just being made.
const unfinishedAge = 10 * time.Second

// expiry is the fixed time at which a table is to be deleted, by its options. A TTL counts from the last use, which the leader's HTTP listener
// knows and looks after.
func expiry(row layer.TableRow) (time.Time, bool) {
	text, ok := row.Options[OptionHTTPExpiresAt]
	if !ok {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

func (n *Node) destroyStreams(ctx context.Context, lease layer.LeaseRef) error {
	for total := 0; ctx.Err() == nil; {
		done, more, err := n.layer.DestroyStreams(ctx, lease, lifecycleLimit)
		if err != nil {
			return err
		}
		if total += done; !more {
			if total > 0 {
				n.logger.Info("deleted streams destroyed", "streams", total)
			}
			return nil
		}
	}
	return ctx.Err()
}

func (n *Node) expirePrepared(ctx context.Context, lease layer.LeaseRef, now time.Time) error {
	for total := 0; ctx.Err() == nil; {
		expired, err := n.layer.ExpirePrepared(ctx, lease, now.Add(-n.options.PreparedTTL), lifecycleLimit)
		if err != nil {
			return err
		}
		if total += expired; expired < lifecycleLimit {
			if total > 0 {
				n.logger.Info("prepared objects expired", "objects", total)
			}
			return nil
		}
	}
	return ctx.Err()
}

// destroyObjects deletes the bytes of doomed objects first and their rows second: a crash in between repeats a delete and never leaks.
func (n *Node) destroyObjects(ctx context.Context, lease layer.LeaseRef, now time.Time) error {
	for total := 0; ctx.Err() == nil; {
		doomed, err := n.layer.DestroyQueue(ctx, lifecycleLimit, now.Add(-n.options.DestroyGrace))
		if err != nil {
			return err
		}
		if len(doomed) == 0 {
			if total > 0 {
				n.logger.Info("objects destroyed", "objects", total)
			}
			return nil
		}
		keys := make([]string, len(doomed))
		for i, d := range doomed {
			keys[i] = d.Object
		}
		if err := n.store.Delete(ctx, keys...); err != nil {
			return fmt.Errorf("delete %d objects: %w", len(keys), err)
		}
		if err := n.layer.Destroyed(ctx, lease, doomed); err != nil {
			return err
		}
		total += len(doomed)
		n.metrics.Destroyed.Add(float64(len(doomed)))
	}
	return ctx.Err()
}
