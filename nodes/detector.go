package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
)

// detector judges the other nodes by this node's own heartbeats. Every node watches, so that one that takes the lease from a dead holder has lived through
// the silence already; only the holder acts. It belongs to the detector loop and starts knowing nothing, so a node lives through a whole node timeout
// before it fences anybody.
type detector struct {
	deadAfter int64 // own heartbeats
	seen      map[int64]sighting
}

// sighting is the last sign of life of a node: its row's epoch and count, and the own heartbeat count when they were first seen.
type sighting struct {
	epoch, count int64
	at           int64
	since        time.Time // for the log only
}

func newDetector(deadAfter int64) *detector {
	return &detector{deadAfter: deadAfter, seen: map[int64]sighting{}}
}

// verdict is a node that gave no sign of life for long enough.
type verdict struct {
	node   layer.NodeRef
	count  int64
	missed int64 // own heartbeats
	silent time.Duration
}

// look compares the heartbeats with the last look. before and after are the own heartbeats answered before the rows were read and after: a sign of life is
// dated late and a silence is measured short, so that doubt favours the node that is judged.
func (d *detector) look(nodes []layer.NodeRow, counts map[int64]layer.HeartbeatRow, self int64, before, after int64) []verdict {
	var dead []verdict
	present := make(map[int64]bool, len(nodes))
	for _, row := range nodes {
		if row.ID == self || row.Fenced {
			continue
		}
		present[row.ID] = true
		beat := counts[row.ID]
		if beat.Epoch != row.Epoch {
			beat = layer.HeartbeatRow{Epoch: row.Epoch} // registered a moment ago
		}
		last, known := d.seen[row.ID]
		if !known || last.epoch != beat.Epoch || last.count != beat.Count {
			d.seen[row.ID] = sighting{beat.Epoch, beat.Count, after, time.Now()}
			continue
		}
		if missed := before - last.at; missed >= d.deadAfter {
			dead = append(dead, verdict{layer.NodeRef{ID: row.ID, Epoch: row.Epoch}, beat.Count, missed, time.Since(last.since)})
		}
	}
	for id := range d.seen {
		if !present[id] {
			delete(d.seen, id)
		}
	}
	return dead
}

// detect is the step of the detector loop.
func (n *Node) detect(ctx context.Context, d *detector) error {
	before := n.pulse.beats.Load()
	rows, err := n.layer.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	counts, err := n.layer.Heartbeats(ctx)
	if err != nil {
		return fmt.Errorf("read heartbeats: %w", err)
	}
	dead := d.look(rows, counts, n.ref.ID, before, n.pulse.beats.Load())
	t := n.tenure.Load()
	if t == nil {
		return nil // the holder sees it, too
	}
	return n.inTenure(t, func(ctx context.Context) error {
		for _, v := range dead {
			if err := n.fence(ctx, t, v); err != nil {
				return err
			}
			n.readForward(ctx)
		}
		return nil
	})(ctx)
}

// fence ends a node that was judged dead. A node that moved in the meantime is left alone.
func (n *Node) fence(ctx context.Context, t *tenure, v verdict) error {
	n.logger.Warn("node is dead: it gave no sign of life", "dead", v.node.String(), "count", v.count, "own_heartbeats", v.missed, "silent", v.silent.Round(time.Millisecond), "lease_epoch", t.lease.Epoch)
	n.takeovers.fencing.Lock()
	defer n.takeovers.fencing.Unlock()
	err := n.layer.FenceNode(ctx, t.lease, v.node, v.count)
	switch {
	case errors.Is(err, layer.ErrHeartbeatMoved), errors.Is(err, layer.ErrNodeNotFound):
		n.logger.Info("node lives after all", "node", v.node.String(), "reason", err)
		return nil
	case err != nil:
		return fmt.Errorf("fence node %v: %w", v.node, err)
	}
	n.metrics.Fenced.Inc()
	n.logger.Warn("node fenced", "dead", v.node.String(), "count", v.count, "lease_epoch", t.lease.Epoch)
	return nil
}
