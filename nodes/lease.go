package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
)

// watched is what a candidate has seen of the lease. It belongs to the lease loop.
type watched struct {
	row    layer.LeaseRow
	since  time.Time // first look at this row since which every look succeeded and came in time; zero: not looked
	looked time.Time // last look
}

// observe notes a look at the row and tells for how long it has been watched unchanged. A look that came late starts anew: the time in
// between was not lived through, and the holder may have been as cut off as this node was.
func (w *watched) observe(row layer.LeaseRow, now time.Time, late time.Duration) time.Duration {
	same := !w.since.IsZero() && w.row.Epoch == row.Epoch && w.row.Renewals == row.Renewals && w.row.Holder == row.Holder && w.row.Released == row.Released
	if !same || now.Sub(w.looked) > late {
		w.since = now
	}
	w.row, w.looked = row, now
	return now.Sub(w.since)
}

// leaseChecks is how often the lease is renewed, or looked at, in a TTL.
const leaseChecks = 4

// leaseStep is the step of the lease loop: renew what is held, else watch and take.
func (n *Node) leaseStep(ctx context.Context) error {
	if n.leaving.Load() {
		return nil // it has given the lease back, and must not take it again
	}
	if t := n.tenure.Load(); t != nil {
		if err := n.renewLease(ctx, t); err != nil && !n.leaving.Load() {
			return err
		}
		return nil
	}
	row, err := n.layer.Lease(ctx, layer.CoordinatorLease)
	if err != nil {
		n.watched.since = time.Time{}
		return err
	}
	idle := n.watched.observe(row, time.Now(), n.options.LeaseTTL)
	dead, err := n.isDead(ctx, row.Holder)
	if err != nil {
		n.watched.since = time.Time{}
		return err
	}
	why := ""
	switch {
	case row.Holder.ID == 0:
		why = "free"
	case row.Released:
		why = "released"
	case dead:
		why = "held by a dead node"
	case idle >= n.options.LeaseTTL:
		why = fmt.Sprintf("not renewed for %v", idle.Round(time.Millisecond))
	default:
		return nil
	}
	return n.acquireLease(ctx, row, why)
}

func (n *Node) acquireLease(ctx context.Context, seen layer.LeaseRow, why string) error {
	row, err := n.layer.AcquireLease(ctx, n.ref, layer.CoordinatorLease, seen)
	switch {
	case errors.Is(err, layer.ErrNotHolder):
		n.watched.since = time.Time{} // another candidate was first
		return nil
	case err != nil:
		if n.failIfFenced("acquire lease", err) {
			return nil
		}
		return err
	}
	logger := n.logger.With("lease", row.Name, "lease_epoch", row.Epoch, "was", why)
	if seen.Holder.ID != 0 {
		logger = logger.With("previous_holder", seen.Holder.String(), "previous_lease_epoch", seen.Epoch)
	}
	logger.Info("lease acquired")
	n.beginTenure(ctx, layer.LeaseRef{Name: row.Name, Holder: n.ref, Epoch: row.Epoch})
	return nil
}

// renewLease keeps the lease. Only an answer that it is lost ends the tenure: while the metadata cannot be reached nobody else can take the lease, and every
// command of the tenure's loops carries the lease epoch, so one that is over can do no harm.
func (n *Node) renewLease(ctx context.Context, t *tenure) error {
	if t.lost.Load() {
		n.endTenure(t, "a command was refused")
		return nil
	}
	_, err := n.layer.RenewLease(ctx, t.lease)
	if errors.Is(err, layer.ErrNotHolder) {
		why := "another node took it"
		if n.leaving.Load() {
			why = "released, the node stops"
		}
		n.endTenure(t, why)
		return nil
	}
	if n.failIfFenced("renew lease", err) {
		return nil
	}
	return err
}
