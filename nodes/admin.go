package nodes

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/varvedb/varve/layer"
)

// Cluster is the name of the cluster.
func (n *Node) Cluster() string { return n.layer.Cluster() }

// Self is this node's row as it registered, or as the view has it since; before that it has only an id.
func (n *Node) Self() layer.NodeRow {
	if !n.built.Load() {
		return layer.NodeRow{ID: n.options.NodeID}
	}
	if row, ok := n.view.Node(n.ref.ID); ok && row.Epoch == n.ref.Epoch {
		return row
	}
	return n.row
}

// LiveNodes lists the nodes that are not fenced, by id.
func (n *Node) LiveNodes() []layer.NodeRow {
	if !n.built.Load() {
		return nil
	}
	var live []layer.NodeRow
	for _, row := range n.view.Nodes() {
		if !row.Fenced {
			live = append(live, row)
		}
	}
	sort.Slice(live, func(i, j int) bool { return live[i].ID < live[j].ID })
	return live
}

// nodesSeen changes when the nodes in the view, or who holds the lease, do.
func (n *Node) nodesSeen() string {
	var b strings.Builder
	for _, row := range n.view.Nodes() {
		fmt.Fprintf(&b, "%d@%d %v %d,", row.ID, row.Epoch, row.Fenced, row.Slots)
	}
	lease, _ := n.view.Lease(layer.CoordinatorLease)
	fmt.Fprintf(&b, "%d %v", lease.Epoch, lease.Released)
	return b.String()
}

// Controller is the lease holder, as the view has it: false when there is none that is alive.
func (n *Node) Controller() (layer.NodeRow, bool) {
	if !n.built.Load() {
		return layer.NodeRow{}, false
	}
	lease, ok := n.view.Lease(layer.CoordinatorLease)
	if !ok || lease.Free() {
		return layer.NodeRow{}, false
	}
	row, ok := n.view.Node(lease.Holder.ID)
	if !ok || row.Fenced || row.Epoch != lease.Holder.Epoch {
		return layer.NodeRow{}, false
	}
	return row, true
}

// Ready tells whether requests should be sent here, and why not.
func (n *Node) Ready() (bool, string) {
	state, err := n.life.get()
	switch {
	case err != nil:
		return false, fmt.Sprintf("node has failed: %v", err)
	case n.draining.Load():
		return false, "node drains"
	case state == StateNew:
		return false, "node has not started: it waits for the metadata or the object store"
	case state == StateStarting:
		return false, fmt.Sprintf("node is starting: %d streams open, %d being opened", n.serving(), n.opening())
	case state != StateRunning:
		return false, "node is " + state.String()
	}
	return true, ""
}

func (n *Node) serving() int {
	if !n.built.Load() {
		return 0
	}
	return n.sync.held.count()
}

func (n *Node) opening() int {
	if !n.built.Load() {
		return 0
	}
	return n.sync.pool.size()
}

// Status is the cluster as this node sees it; heartbeats and loads are read, and missing while the metadata cannot be reached.
func (n *Node) Status(ctx context.Context) ClusterStatus {
	state, _ := n.life.get()
	_, reason := n.Ready()
	status := ClusterStatus{
		Cluster: n.Cluster(), Node: n.options.NodeID, State: state.String(), Reason: reason, Serving: n.serving(), Opening: n.opening(),
	}
	if !n.built.Load() {
		return status
	}
	status.Epoch, status.Fence = n.ref.Epoch, string(n.walRow.Mode)
	status.Heartbeat = n.pulse.age().Seconds()
	status.Tables = len(n.view.Tables())
	if lease, ok := n.view.Lease(layer.CoordinatorLease); ok {
		status.LeaseEpoch = lease.Epoch
	}
	if holder, ok := n.Controller(); ok {
		status.Controller = holder.ID
	}
	status.Nodes = n.NodeStatuses(ctx)
	return status
}

// statusTimeout is how long a status waits for what it reads of the metadata: it is asked for most when they cannot be reached.
const statusTimeout = time.Second

// NodeStatuses lists every node that ever registered, by id. Heartbeats and loads are missing while the metadata cannot be reached.
func (n *Node) NodeStatuses(ctx context.Context) []NodeStatus {
	if !n.built.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	beats, beatsErr := n.layer.Heartbeats(ctx)
	counts, countsErr := n.layer.Loads(ctx)
	if err := errors.Join(beatsErr, countsErr); err != nil {
		n.logger.Debug("status is without heartbeats or loads", "error", err)
	}
	controller, _ := n.Controller()
	rows := n.view.Nodes()
	sort.Slice(rows, func(i, j int) bool { return rows[i].ID < rows[j].ID })
	list := make([]NodeStatus, 0, len(rows))
	for _, row := range rows {
		list = append(list, NodeStatus{
			ID: row.ID, Epoch: row.Epoch, Live: !row.Fenced, Heartbeats: beats[row.ID].Count, Kafka: row.Kafka, HTTP: row.HTTP, Admin: row.Admin,
			Slots: row.Slots, OwnSlots: row.OwnSlots, Rack: row.Rack, Version: row.Version, Streams: counts[row.ID], Controller: row.ID == controller.ID, RegisteredAt: row.RegisteredAt,
		})
	}
	return list
}

// BucketStatuses lists the streams of a table, by bucket, from the rows. Errors: ErrUnknownTable, ErrUnavailable.
func (n *Node) BucketStatuses(ctx context.Context, table string) ([]BucketStatus, error) {
	row, err := n.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	streams, err := n.layer.Streams(ctx, row.ID)
	if err != nil {
		return nil, n.commandFailed("read streams", err)
	}
	list := make([]BucketStatus, 0, len(streams))
	for _, stream := range streams {
		status, err := n.bucketStatus(ctx, table, stream)
		if err != nil {
			return nil, err
		}
		list = append(list, status)
	}
	return list, nil
}

func (n *Node) bucketStatus(ctx context.Context, table string, row layer.StreamRow) (BucketStatus, error) {
	end, err := n.layer.DurableEnd(ctx, row.ID)
	if err != nil && !errors.Is(err, layer.ErrStreamNotFound) {
		return BucketStatus{}, n.commandFailed("read durable end", err)
	}
	status := BucketStatus{
		Stream: row.ID, Table: table, Bucket: row.Bucket, State: string(row.State), Leader: row.Leader, LeaderEpoch: row.LeaderEpoch, Epoch: row.Epoch,
		Start: row.Start, PackedEnd: end, Ended: row.Ended,
	}
	if !row.OpenBy.IsZero() {
		status.OpenBy = row.OpenBy.String()
	}
	if s := n.sync.held.get(bucketKey{row.Table, row.Bucket}); s != nil {
		end := s.End()
		status.End = &end
	}
	if t, ok := n.view.Transfer(row.ID); ok {
		status.TransferTo = t.To
	}
	return status, nil
}
