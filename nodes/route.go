package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/engine"
)

// Stream gives the stream of a bucket when this node serves it. While it is being opened here the call waits, at most Options.OpenWait.
// Errors: ErrUnknownTable, ErrUnknownBucket, *NotLeader, ErrUnavailable (retryable).
func (n *Node) Stream(ctx context.Context, table string, bucket int) (*engine.Stream, error) {
	if err := n.mayServe(); err != nil {
		return nil, err
	}
	row, err := n.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	return n.stream(ctx, row, bucket)
}

// StreamByUUID is Stream for a table's UUID, a Kafka topic id.
func (n *Node) StreamByUUID(ctx context.Context, id uuid.UUID, bucket int) (*engine.Stream, error) {
	if err := n.mayServe(); err != nil {
		return nil, err
	}
	row, ok := n.TableByUUID(id)
	if !ok { // it may have been created through another node a moment ago
		if err := n.catchUp(ctx); err != nil {
			return nil, err
		}
		if row, ok = n.TableByUUID(id); !ok {
			return nil, fmt.Errorf("%w: id %v", ErrUnknownTable, id)
		}
	}
	return n.stream(ctx, row, bucket)
}

func (n *Node) stream(ctx context.Context, table layer.TableRow, bucket int) (*engine.Stream, error) {
	if bucket >= max(table.Buckets, table.Target) { // it may have been added through another node a moment ago
		if err := n.catchUp(ctx); err != nil {
			return nil, err
		}
		if fresh, ok := n.view.TableByID(table.ID); ok {
			table = fresh
		}
	}
	if bucket < 0 || bucket >= max(table.Buckets, table.Target) {
		return nil, fmt.Errorf("%w: %d of %q, which has %d", ErrUnknownBucket, bucket, table.Name, table.Buckets)
	}
	key := bucketKey{table.ID, bucket}
	if s := n.sync.held.get(key); s != nil {
		return s, nil
	}
	return n.awaitStream(ctx, table, key)
}

// catchUp brings the view to where the metadata is now, before something is said not to exist.
func (n *Node) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.options.OpenWait)
	defer cancel()
	if err := n.view.Sync(ctx); err != nil {
		return fmt.Errorf("%w: read metadata: %w", ErrUnavailable, err)
	}
	return nil
}

// awaitStream answers for a bucket that is not open here: another node's is redirected at once, one that should be open here is waited for.
func (n *Node) awaitStream(ctx context.Context, table layer.TableRow, key bucketKey) (*engine.Stream, error) {
	timer := time.NewTimer(n.options.OpenWait)
	defer timer.Stop()
	opened, release := n.sync.held.wait(key)
	defer release()
	for {
		changed := n.view.Changed()
		if s := n.sync.held.get(key); s != nil {
			return s, nil
		}
		if err := n.mayServe(); err != nil {
			return nil, err
		}
		row, err := n.bucketRow(ctx, key)
		if err := n.routed(row, err, table, key.bucket); err != nil {
			return nil, err
		}
		select {
		case <-opened:
		case <-changed:
		case <-ctx.Done():
			return nil, unavailable("bucket %d of %q is being opened: %v", key.bucket, table.Name, ctx.Err())
		case <-timer.C:
			return nil, unavailable("bucket %d of %q is being opened, waited %v", key.bucket, table.Name, n.options.OpenWait)
		case <-n.life.ending():
			return nil, unavailable("node %d is stopping", n.ref.ID)
		}
	}
}

// bucketRow reads no longer than a request may wait.
func (n *Node) bucketRow(ctx context.Context, key bucketKey) (layer.StreamRow, error) {
	ctx, cancel := context.WithTimeout(ctx, n.options.OpenWait)
	defer cancel()
	return n.view.Bucket(ctx, key.table, key.bucket)
}

// routed is nil for a stream that this node should serve, else the answer to give.
func (n *Node) routed(row layer.StreamRow, err error, table layer.TableRow, bucket int) error {
	switch {
	case errors.Is(err, layer.ErrStreamNotFound) && bucket < table.Target:
		return unavailable("bucket %d of %q is being made", bucket, table.Name)
	case errors.Is(err, layer.ErrStreamNotFound):
		return fmt.Errorf("%w: %d of %q, which has %d", ErrUnknownBucket, bucket, table.Name, table.Buckets)
	case err != nil:
		return fmt.Errorf("%w: look up bucket %d of %q: %w", ErrUnavailable, bucket, table.Name, err)
	case row.State == layer.StreamDeleting:
		return fmt.Errorf("%w: %q is being deleted", ErrUnknownTable, table.Name)
	}
	to := n.routedTo(row)
	if to == n.ref.ID {
		return nil
	}
	n.metrics.Redirects.Inc()
	leader, ok := n.view.Node(to)
	if !ok || leader.Fenced {
		leader = layer.NodeRow{}
	}
	return &NotLeader{Leader: leader, LeaderEpoch: row.LeaderEpoch, Table: table.Name, Bucket: bucket}
}

// routedTo is the node that requests for a stream are sent to: its leader, or the target of a pending move, which opens it in a moment.
func (n *Node) routedTo(row layer.StreamRow) int64 {
	if transfer, moving := n.view.Transfer(row.ID); moving && transfer.LeaderEpoch == row.LeaderEpoch {
		return transfer.To
	}
	return row.Leader
}

// mayServe refuses requests and commands before the node has started and once it stops.
func (n *Node) mayServe() error {
	state, _ := n.life.get()
	if !n.built.Load() || state != StateStarting && state != StateRunning {
		return unavailable("node %d is %v", n.options.NodeID, state)
	}
	return nil
}

// Table finds a table by name: in the view, else in the rows, so that one that was just created through another node is found. Errors: ErrUnknownTable,
// ErrUnavailable.
func (n *Node) Table(ctx context.Context, name string) (layer.TableRow, error) {
	if !n.built.Load() {
		return layer.TableRow{}, unavailable("node %d has not started", n.options.NodeID)
	}
	if row, ok := n.view.Table(name); ok {
		return row, nil
	}
	if ValidateName(name) != nil {
		return layer.TableRow{}, fmt.Errorf("%w: %.80q", ErrUnknownTable, name)
	}
	ctx, cancel := context.WithTimeout(ctx, n.options.OpenWait)
	defer cancel()
	row, err := n.layer.TableByName(ctx, name)
	switch {
	case errors.Is(err, layer.ErrTableNotFound):
		return layer.TableRow{}, fmt.Errorf("%w: %q", ErrUnknownTable, name)
	case err != nil:
		return layer.TableRow{}, fmt.Errorf("%w: look up table %q: %w", ErrUnavailable, name, err)
	}
	return row, nil
}

// TableByUUID finds a table by its UUID in the view.
func (n *Node) TableByUUID(id uuid.UUID) (layer.TableRow, bool) {
	if !n.built.Load() {
		return layer.TableRow{}, false
	}
	return n.view.TableByUUID(id)
}

// Tables lists the tables in the view, by name.
func (n *Node) Tables() []layer.TableRow {
	if !n.built.Load() {
		return nil
	}
	return n.view.Tables()
}

// Partitions lists the streams of a table by bucket, as the view or the rows have them; the leader of one that is being moved is the target. Errors: ErrUnknownTable, ErrUnavailable.
func (n *Node) Partitions(ctx context.Context, table string) ([]layer.StreamRow, error) {
	row, err := n.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, n.options.OpenWait)
	defer cancel()
	rows, err := n.view.Buckets(ctx, row)
	if err != nil {
		return nil, fmt.Errorf("%w: look up the buckets of %q: %w", ErrUnavailable, table, err)
	}
	for i := range rows { // Buckets gives a slice of its own
		rows[i].Leader = n.routedTo(rows[i])
	}
	return rows, nil
}
