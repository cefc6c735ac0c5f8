package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
)

// takeovers makes sure that this node recovers a dead node epoch once at a time, whoever asks: the restart, the sync task, the lease
// holder's loop. Other nodes may recover the same one at the same time; the layer's conditions make that harmless.
type takeovers struct {
	// fencing is held while a node is being fenced and until that is logged: the view can show a fence before the command has returned, and
	// the log is to tell the story in order.
	fencing sync.Mutex

	mu      sync.Mutex // guards what follows
	running map[layer.NodeRef]*attempt
	failed  map[layer.NodeRef]time.Time // when the last attempt failed
}

type attempt struct {
	done chan struct{}
	err  error // set before done is closed
}

func newTakeovers() *takeovers {
	return &takeovers{running: map[layer.NodeRef]*attempt{}, failed: map[layer.NodeRef]time.Time{}}
}

// do runs fn, or waits for the one that runs.
func (t *takeovers) do(ctx context.Context, dead layer.NodeRef, fn func() error) error {
	t.mu.Lock()
	if a, ok := t.running[dead]; ok {
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.done:
			return a.err
		}
	}
	a := &attempt{done: make(chan struct{})}
	t.running[dead] = a
	t.mu.Unlock()

	a.err = fn()
	t.mu.Lock()
	delete(t.running, dead)
	delete(t.failed, dead)
	if a.err != nil {
		t.failed[dead] = time.Now()
	}
	t.mu.Unlock()
	close(a.done)
	return a.err
}

// takeoverPause is how long the sync task waits after a failed attempt before it asks for another one.
const takeoverPause = time.Second

// due tells whether an attempt should begin: none runs, and none failed a moment ago.
func (t *takeovers) due(dead layer.NodeRef) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, running := t.running[dead]
	return !running && time.Since(t.failed[dead]) > takeoverPause
}

const (
	takeoverParallel = 4   // dead node epochs that are recovered at the same time
	closeLimit       = 256 // streams that are closed in one transaction
)

// takeOverDead recovers every node epoch that is fenced or replaced and not yet finished. A failure of one does not hold up the others.
func (n *Node) takeOverDead(ctx context.Context) error {
	dead, err := n.unfinished(ctx, 0)
	if err != nil {
		return err
	}
	return n.takeOverAll(ctx, dead)
}

func (n *Node) takeOverAll(ctx context.Context, dead []layer.WALRow) error {
	errs := make([]error, len(dead))
	var group errgroup.Group
	group.SetLimit(takeoverParallel)
	for i, row := range dead {
		group.Go(func() error {
			errs[i] = n.takeOver(ctx, row.Node)
			return nil
		})
	}
	_ = group.Wait() // the functions return nil: their errors are in errs
	return errors.Join(errs...)
}

// unfinished lists the node epochs (of one node, or 0 for all) that are dead and whose write-ahead log is not done with.
func (n *Node) unfinished(ctx context.Context, node int64) ([]layer.WALRow, error) {
	rows, err := n.layer.DeadWALs(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("read write-ahead logs: %w", err)
	}
	return slices.DeleteFunc(rows, func(row layer.WALRow) bool { return row.Node == n.ref }), nil
}

// isDead tells whether a node epoch is fenced or replaced, by the rows: the view may be behind.
func (n *Node) isDead(ctx context.Context, ref layer.NodeRef) (bool, error) {
	if ref.ID == 0 || ref == n.ref {
		return false, nil
	}
	err := n.layer.ConfirmFenced(ctx, ref)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, layer.ErrNotFenced), errors.Is(err, layer.ErrNodeNotFound):
		return false, nil
	}
	return false, fmt.Errorf("is node %v dead: %w", ref, err)
}

// takeOver recovers one dead node epoch: what its write-ahead log holds is adopted and sealed, its streams are closed, the log is done
// with. Every step may be repeated, by this node or another.
func (n *Node) takeOver(ctx context.Context, dead layer.NodeRef) error {
	err := n.takeovers.do(ctx, dead, func() error { return n.recoverNode(ctx, dead) })
	if err != nil && ctx.Err() == nil {
		n.failIfFenced("take over", err)
	}
	return err
}

// beginTakeover is takeOver in the background, at most one for each dead node epoch. Its end triggers the sync task.
func (n *Node) beginTakeover(dead layer.NodeRef) {
	if !n.takeovers.due(dead) {
		return
	}
	n.wg.Go(func() {
		if err := n.takeOver(n.alive, dead); err != nil && n.alive.Err() == nil {
			n.logger.Warn("takeover failed, it is tried again", "dead", dead.String(), "error", err)
		}
	})
}

func (n *Node) recoverNode(ctx context.Context, dead layer.NodeRef) error {
	n.takeovers.fencing.Lock()
	began := time.Now()
	n.takeovers.fencing.Unlock()
	n.logger.Info("takeover begins", "dead", dead.String())
	found, err := wal.Recover(ctx, wal.RecoverOptions{Layer: n.layer, Store: n.store, Cluster: n.layer.Cluster(), By: n.ref, Dead: dead, Logger: n.logger, Metrics: n.metrics.WAL})
	n.metrics.Takeovers.WithLabelValues(result(err)).Inc()
	if errors.Is(err, wal.ErrStopped) {
		n.logger.Error("write-ahead log of a dead node cannot be recovered: an operator has to look at it", "dead", dead.String(), "error", err)
	}
	if err != nil {
		return fmt.Errorf("recover write-ahead log of node %v: %w", dead, err)
	}
	n.logger.Info("write-ahead log recovered and sealed", "dead", dead.String(), "segments", found.Segments, "entries", found.Entries, "bytes", found.Bytes, "sealed_at", found.SealedAt, "took", time.Since(began).Round(time.Millisecond))
	closed, err := n.closeStreamsOf(ctx, dead)
	if err != nil {
		return fmt.Errorf("close streams of node %v: %w", dead, err)
	}
	n.logger.Info("streams closed", "dead", dead.String(), "streams", closed)
	if err := n.layer.FinishWAL(ctx, n.ref, dead); err != nil {
		return fmt.Errorf("finish write-ahead log of node %v: %w", dead, err)
	}
	n.logger.Info("takeover done", "dead", dead.String(), "streams", closed, "took", time.Since(began).Round(time.Millisecond))
	n.readForward(ctx)
	n.sync.loop.trigger()
	if t := n.tenure.Load(); t != nil {
		t.place.trigger()
	}
	return nil
}

func (n *Node) closeStreamsOf(ctx context.Context, dead layer.NodeRef) (int, error) {
	for total := 0; ; {
		closed, more, err := n.layer.CloseStreamsOf(ctx, n.ref, dead, closeLimit)
		total += len(closed)
		if err != nil || !more {
			return total, err
		}
	}
}
