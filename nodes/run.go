package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/engine"
	"github.com/varvedb/varve/wal"
)

// run builds what a registered node consists of and starts its goroutines. ctx is that of Start; the node's own outlives it.
func (n *Node) run(ctx context.Context) error {
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.alive, n.cancel = alive, cancel
	n.view = layer.NewView(n.layer, layer.ViewOptions{Node: n.ref.ID, Logger: n.logger})
	n.sync = newSyncTask(n)
	n.leaseLoop = newLoop("lease", n.options.LeaseTTL/leaseChecks, n.logger, n.leaseStep)
	beat := newLoop("heartbeat", n.options.HeartbeatInterval, n.logger, n.heartbeat)
	beat.jitter = 0 // an early beat of the holder would make its clock run fast

	// Heartbeats come first: what follows can take long, and the node is judged from its registration on.
	n.wg.Go(func() { beat.run(alive) })
	err := n.view.Sync(ctx)
	if err != nil {
		return fmt.Errorf("read metadata: %w", err)
	}
	n.wg.Go(func() { n.followView(alive) })

	logOptions := n.options.WAL
	logOptions.Layer, logOptions.Store, logOptions.Cluster = n.layer, n.store, n.layer.Cluster()
	logOptions.Node, logOptions.Row, logOptions.Logger, logOptions.Metrics = n.ref, n.walRow, n.logger, n.metrics.WAL
	n.log = wal.NewLog(logOptions)
	n.log.Start(alive)
	n.engine, err = engine.New(engine.Deps{
		Layer: n.layer, Log: n.log, Store: n.store, Tables: tableSettings{n.view}, Cluster: n.layer.Cluster(), Node: n.ref, Logger: n.logger, Metrics: n.metrics.Engine,
	}, n.options.Engine)
	if err != nil {
		return err
	}
	n.engine.Start(alive)
	n.built.Store(true)

	n.wg.Go(func() { n.watchFence(alive) })
	detector := newDetector(n.options.deadAfter())
	detect := newLoop("detector", n.options.DetectorInterval, n.logger, func(ctx context.Context) error { return n.detect(ctx, detector) })
	n.wg.Go(func() { detect.run(alive) })
	n.wg.Go(func() { n.lead(alive) })
	n.wg.Go(func() { n.settle(alive) })
	return nil
}

// followView keeps the view fresh until the node ends. What it met while the metadata could not be reached it has retried itself.
func (n *Node) followView(ctx context.Context) {
	for ctx.Err() == nil {
		if err := n.view.Run(ctx); err != nil && ctx.Err() == nil {
			n.logger.Warn("view stopped following the metadata log, it starts again", "error", err)
			sleep(ctx, loopRetry)
		}
	}
}

// watchFence ends the node when its log has failed for good or the view shows that it is fenced or replaced.
func (n *Node) watchFence(ctx context.Context) {
	for {
		changed := n.view.Changed()
		if row, ok := n.view.Node(n.ref.ID); ok && n.over(row) {
			if row.Epoch > n.ref.Epoch {
				n.fail("view", fmt.Errorf("%w, epoch %d", layer.ErrReplaced, row.Epoch))
				return
			}
			n.fail("view", fmt.Errorf("%w: its row says so", layer.ErrFenced))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-n.log.Failed():
			n.fail("write-ahead log", n.log.Err())
			return
		case <-n.engine.Failed():
			n.fail("engine", n.engine.Err())
			return
		}
	}
}

// over tells whether this node's row, in the view, ends this node epoch.
func (n *Node) over(row layer.NodeRow) bool {
	return row.Epoch > n.ref.Epoch || row.Epoch == n.ref.Epoch && row.Fenced
}

// deadInView tells whether the view shows that a node epoch is fenced or replaced. The view may be behind, never ahead.
func (n *Node) deadInView(ref layer.NodeRef) bool {
	row, ok := n.view.Node(ref.ID)
	return ok && (row.Epoch > ref.Epoch || row.Epoch == ref.Epoch && row.Fenced)
}

// lead runs the lease loop, and ends the tenure that is left when it ends.
func (n *Node) lead(ctx context.Context) {
	var followers = make(chan struct{})
	go func() {
		defer close(followers)
		n.followNodes(ctx, n.leaseLoop)
	}()
	n.leaseLoop.run(ctx)
	if t := n.tenure.Load(); t != nil {
		n.endTenure(t, "the node ends")
	}
	<-followers
}

// settle brings a node that has registered to serving: what its earlier epochs left is recovered, and its streams are opened. Streams that need no recovery
// do not wait for it.
func (n *Node) settle(ctx context.Context) {
	n.wg.Go(func() { n.sync.loop.run(ctx) })
	n.wg.Go(func() { n.sync.follow(ctx) })
	if !n.recoverOwn(ctx) || n.awaitOpen(ctx) != nil {
		return // the node ends
	}
	if n.life.advance(StateRunning, nil) {
		n.logger.Info("node is running", "streams", n.sync.held.count(), "after", time.Since(n.pulse.start).Round(time.Millisecond))
	}
}

// recoverOwn recovers every earlier epoch of this node id that nobody has, and tries until it has. A log that only an operator can help is
// left: its streams are not served, all others are. false: ctx ended.
func (n *Node) recoverOwn(ctx context.Context) bool {
	within, done := context.WithCancel(ctx)
	defer done()
	newLoop("recovery", time.Second, n.logger, func(ctx context.Context) error {
		earlier, err := n.unfinished(ctx, n.ref.ID)
		if err == nil {
			err = n.takeOverAll(ctx, earlier)
		}
		if err == nil {
			err = n.view.Sync(ctx)
		}
		if err == nil || errors.Is(err, wal.ErrStopped) {
			done()
		}
		return err
	}).run(within)
	return ctx.Err() == nil
}

// awaitOpen returns once a look of the sync task has been made and its work is done.
func (n *Node) awaitOpen(ctx context.Context) error {
	if err := n.sync.step(ctx); err != nil {
		return err
	}
	return n.sync.pool.wait(ctx)
}

// readForward brings the view up to what was just committed. A failure costs only time: the view follows by itself.
func (n *Node) readForward(ctx context.Context) {
	if err := n.view.Sync(ctx); err != nil && ctx.Err() == nil {
		n.logger.Debug("view could not be read forward", "error", err)
	}
}

// failIfFenced ends the node when err says that this node epoch is over, and tells whether it did.
func (n *Node) failIfFenced(what string, err error) bool {
	if !fenced(err) {
		return false
	}
	// Commands about other nodes can be refused for the other's fence, so the node's own row has the word.
	ctx, cancel := context.WithTimeout(n.alive, time.Second)
	defer cancel()
	if verified := n.layer.VerifyNode(ctx, n.ref); !errors.Is(verified, layer.ErrFenced) && !errors.Is(verified, layer.ErrReplaced) {
		return false
	}
	n.fail(what, err)
	return true
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
