package nodes

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvedb/varve/layer"
)

// NotController says that only the lease holder can do what was asked for. Callers go there.
type NotController struct {
	Holder layer.NodeRow // ID 0 while there is none
}

func (e *NotController) Error() string {
	if e.Holder.ID == 0 {
		return "no live node holds the lease now"
	}
	return fmt.Sprintf("node %d holds the lease and has to be asked", e.Holder.ID)
}

// fenceTries is how often a node that heartbeats in between is looked at anew.
const fenceTries = 10

// FenceNode ends the current epoch of a node on an operator's word, whether or not it lives: the process stops serving and exits, and its streams
// are taken over. Errors: *NotController (this node does not hold the lease), ErrInvalidRequest (no such node, or it is fenced already), ErrUnavailable.
func (n *Node) FenceNode(ctx context.Context, id int64) error {
	if err := n.mayServe(); err != nil {
		return err
	}
	t := n.tenure.Load()
	if t == nil {
		holder, _ := n.Controller()
		return &NotController{Holder: holder}
	}
	for try := 1; ; try++ {
		target, count, err := n.fenceable(ctx, id)
		if err != nil {
			return err
		}
		err = n.layer.FenceNode(ctx, t.lease, target, count)
		switch {
		case err == nil:
			n.metrics.Fenced.Inc()
			n.logger.Warn("node fenced by an operator", "dead", target.String(), "count", count, "lease_epoch", t.lease.Epoch)
			n.readForward(ctx)
			return nil
		case (errors.Is(err, layer.ErrHeartbeatMoved) || errors.Is(err, layer.ErrTargetGone)) && try < fenceTries:
		case errors.Is(err, layer.ErrNotHolder):
			holder, _ := n.Controller()
			return &NotController{Holder: holder}
		default:
			return n.commandFailed("fence node", err)
		}
	}
}

// fenceable is the node's epoch and heartbeat count now.
func (n *Node) fenceable(ctx context.Context, id int64) (layer.NodeRef, int64, error) {
	rows, err := n.layer.Nodes(ctx)
	if err != nil {
		return layer.NodeRef{}, 0, n.commandFailed("read nodes", err)
	}
	for _, row := range rows {
		if row.ID != id {
			continue
		}
		if row.Fenced {
			return layer.NodeRef{}, 0, fmt.Errorf("%w: node %d@%d is fenced already", ErrInvalidRequest, id, row.Epoch)
		}
		beats, err := n.layer.Heartbeats(ctx)
		if err != nil {
			return layer.NodeRef{}, 0, n.commandFailed("read heartbeats", err)
		}
		return layer.NodeRef{ID: id, Epoch: row.Epoch}, beats[id].Count, nil
	}
	return layer.NodeRef{}, 0, fmt.Errorf("%w: there is no node %d", ErrInvalidRequest, id)
}
