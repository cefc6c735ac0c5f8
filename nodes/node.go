package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/engine"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/objects"
)

// Node is one registration of a node: it registers when it starts and is over when it stops or is fenced. A process that was fenced exits
// and registers anew.
//
// Lock order: life.mu and holdings.mu are leaves; nothing is called with one held.
type Node struct {
	options Options
	layer   *layer.Store
	store   objects.Store
	logger  *slog.Logger
	metrics *Metrics

	life     *life
	draining atomic.Bool     // readiness fails though the node still runs
	leaving  atomic.Bool     // the node fences itself
	built    atomic.Bool     // the fields that Start sets are there: who was not called by Start looks here first
	alive    context.Context // the node's own, from Start on; ends with it
	cancel   context.CancelFunc
	wg       sync.WaitGroup // every goroutine of the node
	stopping sync.Once
	started  chan struct{} // closed when Start returns

	// Set by Start before anything else runs, and not changed.
	ref       layer.NodeRef
	row       layer.NodeRow
	walRow    layer.WALRow
	view      *layer.View
	log       *wal.Log
	engine    *engine.Engine
	pulse     *pulse
	sync      *syncTask
	takeovers *takeovers

	ids       producerIDs
	leaseLoop *loop
	watched   watched                // owned by the lease loop
	tenure    atomic.Pointer[tenure] // written by the lease loop
}

// New makes a node that has not started. The store and the layer stay the caller's, who closes them after Stop.
func New(options Options, store *layer.Store, objectStore objects.Store, logger *slog.Logger, metrics *Metrics) (*Node, error) {
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("node options: %w", err)
	}
	return &Node{
		options: options, layer: store, store: objectStore, metrics: metrics, life: newLife(), started: make(chan struct{}), takeovers: newTakeovers(),
		logger: logger.With("node", options.NodeID),
	}, nil
}

// Start registers the node at its next epoch and starts its loops. It returns then: what earlier epochs of the node left is recovered, and its streams are
// opened, in the background; AwaitReady waits for that. ctx bounds the start alone. A node starts once.
func (n *Node) Start(ctx context.Context) error {
	if !n.life.advance(StateStarting, nil) {
		return fmt.Errorf("node %d was started before", n.options.NodeID)
	}
	defer close(n.started)
	if err := n.start(ctx); err != nil {
		n.life.advance(StateFailed, err)
		if n.cancel != nil {
			n.bury()
		}
		n.life.finish()
		return fmt.Errorf("start node %d: %w", n.options.NodeID, err)
	}
	return nil
}

// Done is closed when the node has ended: stopped, or failed, with every goroutine of it gone. Err says which.
func (n *Node) Done() <-chan struct{} { return n.life.done }

// Err is nil for a node that lives or was stopped, ErrFenced (wrapped) for one that was fenced.
func (n *Node) Err() error {
	_, err := n.life.get()
	return err
}

// State is where the node is in its life.
func (n *Node) State() State {
	state, _ := n.life.get()
	return state
}

// AwaitReady returns nil once the node serves every stream that it should, else the reason why it never will or the end of ctx.
func (n *Node) AwaitReady(ctx context.Context) error {
	state, err := n.life.await(ctx, StateRunning)
	switch {
	case err != nil:
		return err
	case state != StateRunning:
		return unavailable("node %d is %v", n.options.NodeID, state)
	}
	return nil
}

func (n *Node) start(ctx context.Context) error {
	mode, err := n.chooseMode(ctx)
	if err != nil {
		return err
	}
	o := n.options
	info := layer.NodeInfo{ID: o.NodeID, Kafka: o.AdvertisedKafka, HTTP: o.AdvertisedHTTP, Admin: o.AdvertisedAdmin, Slots: o.Slots, Version: o.Version, Rack: o.Rack}
	n.row, n.walRow, err = n.layer.RegisterNode(ctx, info, mode, uuid.New(), uuid.New(), time.Now())
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	n.ref = n.row.Ref()
	n.pulse = newPulse()
	n.logger = n.logger.With("node_epoch", n.ref.Epoch)
	n.logger.Info("node registered", "cluster", n.layer.Cluster(), "wal_fence", mode, "slots", n.row.Slots)
	if n.row.OwnSlots != nil {
		n.logger.Info("slots are an operator's, those of this node wait until they are reset", "slots", n.row.Slots, "own_slots", *n.row.OwnSlots)
	}
	return n.run(ctx)
}

// chooseMode probes the object store until it answers or ctx ends.
func (n *Node) chooseMode(ctx context.Context) (layer.FenceMode, error) {
	for pause := loopRetry; ; pause = min(2*pause, time.Second) {
		mode, err := wal.ChooseMode(ctx, n.store, n.options.Fence)
		if err == nil {
			return mode, nil
		}
		err = fmt.Errorf("probe object store %v: %w", n.store, err)
		if ctx.Err() != nil || errors.Is(err, objects.ErrDenied) {
			return "", err
		}
		n.logger.Warn("object store cannot be probed, trying again", "error", err)
		sleep(ctx, pause)
	}
}
