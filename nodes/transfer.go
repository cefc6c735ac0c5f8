package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer"
)

// Transfer asks for a planned move of a bucket to a live node. It returns once the move is pending; Transfers shows it until it is done.
// Errors: ErrUnknownTable, ErrUnknownBucket, ErrInvalidRequest (the target is not alive or leads the bucket already), ErrUnavailable.
func (n *Node) Transfer(ctx context.Context, table string, bucket int, to int64) (layer.TransferRow, error) {
	row, err := n.Table(ctx, table)
	if err != nil {
		return layer.TransferRow{}, err
	}
	stream, err := n.layer.StreamOfBucket(ctx, row.ID, bucket)
	switch {
	case errors.Is(err, layer.ErrStreamNotFound):
		return layer.TransferRow{}, fmt.Errorf("%w: %d of %q", ErrUnknownBucket, bucket, table)
	case err != nil:
		return layer.TransferRow{}, n.commandFailed("read stream", err)
	}
	return n.transfer(ctx, stream, to)
}

func (n *Node) transfer(ctx context.Context, stream layer.StreamRow, to int64) (layer.TransferRow, error) {
	if target, ok := n.view.Node(to); !ok || target.Fenced {
		return layer.TransferRow{}, fmt.Errorf("%w: node %d is not alive", ErrInvalidRequest, to)
	}
	if stream.Leader == to {
		return layer.TransferRow{}, fmt.Errorf("%w: node %d leads stream %d already", ErrInvalidRequest, to, stream.ID)
	}
	if err := n.mayServe(); err != nil {
		return layer.TransferRow{}, err
	}
	row, err := n.layer.BeginTransfer(ctx, n.ref, stream.ID, to, stream.LeaderEpoch, time.Now())
	switch {
	case errors.Is(err, layer.ErrTargetGone), errors.Is(err, layer.ErrTransferPending), errors.Is(err, layer.ErrStreamNotFound):
		return layer.TransferRow{}, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	case err != nil:
		return layer.TransferRow{}, n.commandFailed("begin transfer", err)
	}
	n.logger.Info("transfer begun", "stream", row.Stream, "from", row.From, "to", row.To, "leader_epoch", row.LeaderEpoch)
	n.readForward(ctx)
	return row, nil
}

// CancelTransfer gives up a pending move. Errors: ErrInvalidRequest (none is pending), ErrUnavailable.
func (n *Node) CancelTransfer(ctx context.Context, stream int64) error {
	transfer, ok := n.view.Transfer(stream)
	if !ok {
		return fmt.Errorf("%w: no transfer of stream %d is pending", ErrInvalidRequest, stream)
	}
	if err := n.mayServe(); err != nil {
		return err
	}
	err := n.layer.CancelTransfer(ctx, n.ref, transfer)
	switch {
	case errors.Is(err, layer.ErrTransferNotFound):
		return fmt.Errorf("%w: no transfer of stream %d is pending", ErrInvalidRequest, stream)
	case err != nil:
		return n.commandFailed("cancel transfer", err)
	}
	n.logger.Info("transfer cancelled", "stream", stream, "to", transfer.To)
	n.readForward(ctx)
	return nil
}

// SetSlots changes the weight of a node in placement, whatever it registers with, until ResetSlots; 0 places no streams on it. Errors: ErrInvalidRequest,
// ErrUnavailable.
func (n *Node) SetSlots(ctx context.Context, node int64, slots int) error {
	if slots < 0 {
		return fmt.Errorf("%w: %d slots", ErrInvalidRequest, slots)
	}
	if err := n.changeSlots(ctx, node, func() error { return n.layer.SetSlots(ctx, node, slots) }); err != nil {
		return err
	}
	n.logger.Info("slots set by an operator", "of", node, "slots", slots)
	return nil
}

// ResetSlots gives a node the weight that it registered with, after SetSlots or DrainNode. Errors: ErrInvalidRequest, ErrUnavailable.
func (n *Node) ResetSlots(ctx context.Context, node int64) error {
	if err := n.changeSlots(ctx, node, func() error { return n.layer.ResetSlots(ctx, node) }); err != nil {
		return err
	}
	n.logger.Info("slots are the node's own again", "of", node)
	return nil
}

func (n *Node) changeSlots(ctx context.Context, node int64, change func() error) error {
	if err := n.mayServe(); err != nil {
		return err
	}
	err := change()
	switch {
	case errors.Is(err, layer.ErrNodeNotFound):
		return fmt.Errorf("%w: there is no node %d", ErrInvalidRequest, node)
	case err != nil:
		return n.commandFailed("change slots", err)
	}
	n.readForward(ctx)
	return nil
}

// DrainNode gives up moves to a node, begins to move every stream of it to the others, and lets no more be placed on it until ResetSlots, over restarts of it too. It tells how
// many moves it began. Errors: ErrInvalidRequest (no such node, or no other can take its streams: then nothing was done), ErrUnavailable.
func (n *Node) DrainNode(ctx context.Context, node int64) (int, error) {
	load, err := n.currentLoads(ctx)
	if err != nil {
		return 0, err
	}
	load.leaveOut(node)
	if len(load.nodes) == 0 {
		return 0, fmt.Errorf("%w: no live node with slots can take the streams of node %d", ErrInvalidRequest, node)
	}
	if err := n.SetSlots(ctx, node, 0); err != nil {
		return 0, err
	}
	for _, t := range n.view.Transfers() {
		if t.To != node {
			continue
		}
		if err := n.CancelTransfer(ctx, t.Stream); err != nil && !errors.Is(err, ErrInvalidRequest) { // done a moment ago: then it is moved below
			return 0, err
		}
	}
	return n.moveStreams(ctx, node, load.pick)
}

// Rebalance begins to move streams from the fullest nodes to the emptiest, until every one is within 10% of the mean load per slot. Streams without a leader are placed
// by the lease holder, at once. It tells how many moves it began. Errors: ErrUnavailable.
func (n *Node) Rebalance(ctx context.Context) (int, error) {
	load, err := n.currentLoads(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, give := range load.even() {
		begun, err := n.moveStreams(ctx, give.from, give.next)
		total += begun
		if err != nil {
			return total, err
		}
	}
	n.logger.Info("rebalance begun", "moves", total)
	return total, nil
}

func (n *Node) currentLoads(ctx context.Context) (*loads, error) {
	rows, err := n.layer.Nodes(ctx)
	if err != nil {
		return nil, n.commandFailed("read nodes", err)
	}
	counts, err := n.layer.Loads(ctx)
	if err != nil {
		return nil, n.commandFailed("read loads", err)
	}
	return newLoads(rows, counts), nil
}

// gift is what one node gives away: one stream to each of the nodes, which may repeat.
type gift struct {
	from int64
	to   []int64
}

// next takes the next target; 0 when there is none.
func (g *gift) next() int64 {
	if len(g.to) == 0 {
		return 0
	}
	to := g.to[0]
	g.to = g.to[1:]
	return to
}

// even plans moves, one stream at a time from the fullest node to the emptiest, while the one is above 110% of the mean load per slot or the
// other below 90% of it, and the move does not only swap them.
func (l *loads) even() []*gift {
	var slots, streams int64
	for _, row := range l.nodes {
		slots += int64(row.Slots)
		streams += l.streams[row.ID]
	}
	var gifts []*gift
	byNode := map[int64]*gift{}
	mean := float64(streams) / float64(max(slots, 1))
	for range streams {
		full, empty := l.extremes()
		if full.Slots == 0 || l.perSlot(full, 0) <= 1.1*mean && l.perSlot(empty, 0) >= 0.9*mean || l.perSlot(full, -1) < l.perSlot(empty, +1) {
			break
		}
		g := byNode[full.ID]
		if g == nil {
			g = &gift{from: full.ID}
			byNode[full.ID] = g
			gifts = append(gifts, g)
		}
		g.to = append(g.to, empty.ID)
		l.streams[full.ID]--
		l.streams[empty.ID]++
	}
	return gifts
}

// perSlot is a node's load after so many more streams.
func (l *loads) perSlot(row layer.NodeRow, more int64) float64 {
	return float64(l.streams[row.ID]+more) / float64(row.Slots)
}

// extremes gives the nodes with the most and the fewest streams per slot; rows without slots when there is no node.
func (l *loads) extremes() (full, empty layer.NodeRow) {
	for _, row := range l.nodes {
		if full.Slots == 0 || l.perSlot(row, 0) > l.perSlot(full, 0) {
			full = row
		}
		if empty.Slots == 0 || l.perSlot(row, 0) < l.perSlot(empty, 0) {
			empty = row
		}
	}
	return full, empty
}

// moveStreams begins to move streams of a node to where next says, until it says 0 or the node has none left. A stream that has moved on in the
// meantime is left out.
func (n *Node) moveStreams(ctx context.Context, from int64, next func() int64) (int, error) {
	var begun atomic.Int64
	for after := int64(0); ; {
		page, err := n.layer.Owned(ctx, from, after, placePage)
		if err != nil {
			return int(begun.Load()), n.commandFailed("read streams", err)
		}
		var group errgroup.Group
		group.SetLimit(placeParallel)
		done := len(page) == 0
		for _, row := range page {
			after = row.ID
			if _, moving := n.view.Transfer(row.ID); moving || row.State == layer.StreamDeleting {
				continue
			}
			to := next()
			if done = to == 0; done {
				break
			}
			group.Go(func() error {
				moved, err := n.moveStream(ctx, row, to)
				if moved {
					begun.Add(1)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil || done {
			return int(begun.Load()), err
		}
	}
}

// moveStream begins a move that the stream may have made pointless.
func (n *Node) moveStream(ctx context.Context, row layer.StreamRow, to int64) (bool, error) {
	_, err := n.transfer(ctx, row, to)
	if errors.Is(err, layer.ErrStaleLeader) || errors.Is(err, layer.ErrStreamNotFound) || errors.Is(err, ErrInvalidRequest) {
		n.logger.Debug("stream is not moved", "stream", row.ID, "to", to, "error", err)
		return false, nil
	}
	return err == nil, err
}

// Transfers lists the pending moves.
func (n *Node) Transfers(ctx context.Context) ([]TransferStatus, error) {
	if !n.built.Load() {
		return nil, unavailable("node %d has not started", n.options.NodeID)
	}
	var list []TransferStatus
	for _, t := range n.view.Transfers() {
		status := TransferStatus{Stream: t.Stream, From: t.From, To: t.To, LeaderEpoch: t.LeaderEpoch, At: t.At}
		if stream, err := n.view.Stream(ctx, t.Stream); err == nil {
			status.Bucket = stream.Bucket
			if table, ok := n.view.TableByID(stream.Table); ok {
				status.Table = table.Name
			}
		}
		list = append(list, status)
	}
	return list, nil
}
