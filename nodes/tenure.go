package nodes

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/varvedb/varve/layer"
)

// tenure is the time in which this node holds the lease, and the loops that run in it. The lease loop begins and ends it, and waits
// for the loops when it ends.
type tenure struct {
	lease  layer.LeaseRef
	cancel context.CancelFunc
	wg     sync.WaitGroup
	lost   atomic.Bool // a command was refused because another node has the lease

	place     *loop // takeover and placement
	lifecycle *loop
}

// takeoverTicks is how many coordinator ticks pass between two looks for dead nodes' logs. Changes of nodes and failures bring the next
// look at once.
const takeoverTicks = 6

func (n *Node) beginTenure(ctx context.Context, lease layer.LeaseRef) {
	ctx, cancel := context.WithCancel(ctx)
	t := &tenure{lease: lease, cancel: cancel}
	logger := n.logger.With("lease_epoch", lease.Epoch)
	sweeper := newSweeper()
	trimmer := &logTrimmer{}

	takeover := newLoop("takeover", takeoverTicks*n.options.CoordinatorTick, logger, n.inTenure(t, func(ctx context.Context) error { return n.takeOverDead(ctx) }))
	t.place = newLoop("placement", n.options.CoordinatorTick, logger, n.inTenure(t, func(ctx context.Context) error { return n.placeOrphans(ctx, t.lease) }))
	t.lifecycle = newLoop("lifecycle", n.options.LifecycleInterval, logger, n.inTenure(t, func(ctx context.Context) error { return n.lifecycleStep(ctx, t.lease, trimmer) }))
	sweep := newLoop("sweep", n.options.SweepInterval, logger, n.inTenure(t, func(ctx context.Context) error { return n.sweepStep(ctx, t.lease, sweeper) }))
	for _, l := range []*loop{takeover, t.place, t.lifecycle, sweep} {
		t.wg.Go(func() { l.run(ctx) })
	}
	t.wg.Go(func() { n.followNodes(ctx, takeover, t.place) })
	n.tenure.Store(t)
	n.metrics.Controller.Set(1)
}

// inTenure lets the refusal of a command end the tenure.
func (n *Node) inTenure(t *tenure, step func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := step(ctx)
		if errors.Is(err, layer.ErrNotHolder) {
			t.lost.Store(true)
			n.leaseLoop.trigger()
			return nil
		}
		if n.failIfFenced("coordinator", err) {
			return nil
		}
		return err
	}
}

// endTenure stops the loops and waits for them.
func (n *Node) endTenure(t *tenure, why string) {
	n.metrics.Controller.Set(0)
	n.tenure.Store(nil)
	t.cancel()
	t.wg.Wait()
	what := "lease lost"
	if n.leaving.Load() {
		what = "lease given back"
	}
	n.logger.Info(what, "lease", t.lease.Name, "lease_epoch", t.lease.Epoch, "why", why)
}

// followNodes wakes the loops when the nodes in the view change, so that what a fence or a clean stop leaves is taken care of at once.
func (n *Node) followNodes(ctx context.Context, wake ...*loop) {
	seen := n.nodesSeen()
	for {
		changed := n.view.Changed()
		if now := n.nodesSeen(); now != seen {
			seen = now
			for _, l := range wake {
				l.trigger()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
