package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
)

// Stopping is closed when the node begins to stop or has failed: live reads end then.
func (n *Node) Stopping() <-chan struct{} { return n.life.ending() }

// Drain fails readiness at once, and after Options.ShutdownDrain refuses every request for a stream. Listeners are stopped between it and Stop.
func (n *Node) Drain(ctx context.Context) {
	if !n.draining.Swap(true) && n.State() == StateRunning {
		n.logger.Info("node drains", "for", n.options.ShutdownDrain)
		select {
		case <-ctx.Done():
		case <-n.life.ending():
		case <-time.After(n.options.ShutdownDrain):
		}
	}
	n.life.advance(StateStopping, nil)
}

// Stop drains when Drain was not called, makes durable and adopts what the streams hold, closes them, gives the lease back and fences this node epoch, so that others
// take its streams at once. When ctx ends first, what is left is for a recoverer: nothing acknowledged is lost. It may be called more
// than once, and returns when every goroutine of the node has ended.
func (n *Node) Stop(ctx context.Context) error {
	if n.State() == StateNew && n.life.advance(StateStopped, nil) {
		n.life.finish()
	}
	select {
	case <-n.life.done:
		return nil
	case <-n.started:
	case <-ctx.Done():
		return fmt.Errorf("node %d is still starting: %w", n.options.NodeID, ctx.Err())
	}
	var err error
	n.stopping.Do(func() {
		n.Drain(ctx)
		if n.State() == StateStopping {
			err = n.shutDown(ctx)
		}
	})
	<-n.life.done
	return err
}

func (n *Node) shutDown(ctx context.Context) error {
	began := time.Now()
	open := n.sync.held.count()
	errs := n.closeAll(ctx)
	n.logger.Info("streams closed", "streams", open, "left", n.sync.held.count(), "took", time.Since(began).Round(time.Millisecond))
	n.leaving.Store(true) // its fence is its own from here on
	if t := n.tenure.Load(); t != nil {
		if err := n.layer.ReleaseLease(ctx, t.lease); err != nil && !errors.Is(err, layer.ErrNotHolder) {
			errs = errors.Join(errs, fmt.Errorf("release lease: %w", err))
		}
	}
	if err := n.layer.FenceSelf(ctx, n.ref); err != nil && !fenced(err) {
		errs = errors.Join(errs, fmt.Errorf("fence self: %w", err))
	}
	n.bury()
	if n.life.advance(StateStopped, nil) {
		n.logger.Info("node stopped", "took", time.Since(began).Round(time.Millisecond))
	}
	n.life.finish()
	return errs
}

// closeAll lets the sync task close every stream: a node that stops wants none. Many close at once, so that they share packs.
func (n *Node) closeAll(ctx context.Context) error {
	for {
		if err := n.sync.pool.wait(ctx); err != nil {
			return fmt.Errorf("%d streams are not closed: %w", n.sync.held.count(), err)
		}
		if n.sync.held.count() == 0 || n.State() != StateStopping {
			return nil
		}
		if err := n.sync.step(ctx); err != nil {
			return err
		}
	}
}

// fail ends the node for good: it stops serving at once, closes nothing, and is done when its goroutines have ended.
func (n *Node) fail(what string, err error) {
	if n.leaving.Load() || !n.life.advance(StateFailed, fmt.Errorf("%w: %s: %w", ErrFenced, what, err)) {
		return
	}
	n.logger.Error("node is fenced or broken: it stops serving", "noticed_by", what, "error", err)
	go func() { // not in wg: it waits for it; Done waits for this
		<-n.started // what Start builds is buried whole
		n.bury()
		n.life.finish()
	}()
}

// bury ends every goroutine of the node and waits for them.
func (n *Node) bury() {
	n.cancel()
	if n.engine != nil {
		n.engine.Stop()
	}
	if n.log != nil {
		_ = n.log.Close(n.alive) // nothing is waited for: what was not durable is for the recoverer
	}
	n.wg.Wait()
}
