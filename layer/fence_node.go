package layer

import (
	"context"
	"errors"
	"fmt"
)

// FenceNode fences a node epoch that the lease holder judged dead at a heartbeat count. Conditional on the lease, on the node's epoch (ErrTargetGone) and on
// its count (ErrHeartbeatMoved). One that is fenced already stays so.
func (s *Store) FenceNode(ctx context.Context, lease LeaseRef, target NodeRef, count int64) error {
	return s.transact(ctx, "fence node "+target.String(), lease, func(t *tx) error {
		holder, node, beat := t.lease(lease), t.node(target), t.heartbeat(target.ID)
		if err := holder.held(); err != nil {
			return err
		}
		row, ok, err := node.get()
		if err != nil {
			return err
		}
		switch err := row.alive(target, ok); {
		case errors.Is(err, ErrFenced):
			return nil
		case errors.Is(err, ErrReplaced):
			return targetError(err)
		case err != nil:
			return err
		}
		heartbeat, _, err := beat.get()
		if err != nil {
			return err
		}
		if heartbeat.Count != count {
			return fmt.Errorf("%w: %s was judged at count %d, has %d", ErrHeartbeatMoved, target, count, heartbeat.Count)
		}
		row.Fenced = true
		t.setNode(row)
		return nil
	})
}

// FenceSelf fences a node's own epoch. When it returned nil, nothing of that epoch can be committed any more; that is so, too, when it was replaced.
func (s *Store) FenceSelf(ctx context.Context, node NodeRef) error {
	return s.transact(ctx, "fence self", node, func(t *tx) error {
		row, ok, err := t.node(node).get()
		if err != nil {
			return err
		}
		switch err := row.alive(node, ok); {
		case errors.Is(err, ErrFenced), errors.Is(err, ErrReplaced):
			return nil
		case err != nil:
			return err
		}
		row.Fenced = true
		t.setNode(row)
		return nil
	})
}

// targetError says that another node than the proposer is fenced, replaced or unknown, so that no proposer takes it for its own fence.
func targetError(err error) error { return fmt.Errorf("%w: %v", ErrTargetGone, err) }
