package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer"
)

const (
	placeParallel = 32  // streams that get a leader at the same time
	placePage     = 512 // streams that are read at once
)

// loads is what placement knows: live nodes with slots, and how many streams each leads.
type loads struct {
	nodes   []layer.NodeRow // by id
	streams map[int64]int64
}

func newLoads(nodes []layer.NodeRow, streams map[int64]int64) *loads {
	l := &loads{streams: map[int64]int64{}}
	for _, row := range nodes {
		if !row.Fenced && row.Slots > 0 {
			l.nodes = append(l.nodes, row)
			l.streams[row.ID] = streams[row.ID]
		}
	}
	sort.Slice(l.nodes, func(i, j int) bool { return l.nodes[i].ID < l.nodes[j].ID })
	return l
}

// leaveOut takes a node out: it gets nothing.
func (l *loads) leaveOut(node int64) {
	l.nodes = slices.DeleteFunc(l.nodes, func(row layer.NodeRow) bool { return row.ID == node })
}

// pick chooses the node with the fewest streams per slot, the lowest id on ties, and counts the stream as its own. 0: there is no node.
func (l *loads) pick() int64 {
	best := -1
	for i, row := range l.nodes {
		// a/s < b/t without fractions
		if best < 0 || l.streams[row.ID]*int64(l.nodes[best].Slots) < l.streams[l.nodes[best].ID]*int64(row.Slots) {
			best = i
		}
	}
	if best < 0 {
		return 0
	}
	l.streams[l.nodes[best].ID]++
	return l.nodes[best].ID
}

// placeOrphans is the step of the placement loop: every closed stream without a live leader gets one.
func (n *Node) placeOrphans(ctx context.Context, lease layer.LeaseRef) error {
	rows, err := n.layer.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	counts, err := n.layer.Loads(ctx)
	if err != nil {
		return fmt.Errorf("read loads: %w", err)
	}
	load := newLoads(rows, counts)
	if len(load.nodes) == 0 {
		return nil
	}
	for _, leader := range orphanedBy(rows, counts) {
		if err := n.placeStreamsOf(ctx, lease, load, leader); err != nil {
			return err
		}
	}
	return nil
}

// orphanedBy lists the leaders that are not alive and lead streams; 0 stands for no leader.
func orphanedBy(rows []layer.NodeRow, counts map[int64]int64) []int64 {
	alive := map[int64]bool{}
	for _, row := range rows {
		alive[row.ID] = !row.Fenced
	}
	var gone []int64
	for id, streams := range counts {
		if streams > 0 && !alive[id] {
			gone = append(gone, id)
		}
	}
	sort.Slice(gone, func(i, j int) bool { return gone[i] < gone[j] })
	return gone
}

// placeStreamsOf gives new leaders to the closed streams of one that is gone. Those that are still open wait for the takeover.
func (n *Node) placeStreamsOf(ctx context.Context, lease layer.LeaseRef, load *loads, gone int64) error {
	placed := 0
	transfers := n.transfersByStream()
	for after := int64(0); ; {
		page, err := n.layer.Owned(ctx, gone, after, placePage)
		if err != nil {
			return fmt.Errorf("read streams led by node %d: %w", gone, err)
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].ID
		moved, err := n.placePageOf(ctx, lease, load, transfers, page)
		placed += moved
		if err != nil {
			return err
		}
	}
	if placed > 0 {
		n.logger.Info("streams placed", "from", gone, "streams", placed, "lease_epoch", lease.Epoch)
		n.readForward(ctx)
	}
	return nil
}

func (n *Node) placePageOf(ctx context.Context, lease layer.LeaseRef, load *loads, transfers map[int64]layer.TransferRow, page []layer.StreamRow) (int, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(placeParallel)
	moved := 0
	for _, row := range page {
		if row.State != layer.StreamClosed {
			continue
		}
		to := load.target(transfers[row.ID])
		moved++
		group.Go(func() error { return n.giveLeader(ctx, lease, row, to) })
	}
	return moved, group.Wait()
}

// target is the target of a pending transfer when it can serve, else the least loaded node.
func (l *loads) target(transfer layer.TransferRow) int64 {
	for _, row := range l.nodes {
		if transfer.Stream != 0 && row.ID == transfer.To {
			l.streams[row.ID]++
			return row.ID
		}
	}
	return l.pick()
}

func (n *Node) giveLeader(ctx context.Context, lease layer.LeaseRef, row layer.StreamRow, to int64) error {
	_, err := n.layer.LeadBucket(ctx, lease, row.ID, to, row.LeaderEpoch)
	switch {
	case errors.Is(err, layer.ErrStaleLeader), errors.Is(err, layer.ErrStreamNotFound), errors.Is(err, layer.ErrTargetGone):
		return nil // it moved meanwhile: the next look sees it anew
	case err != nil:
		return fmt.Errorf("make node %d leader of stream %d: %w", to, row.ID, err)
	}
	n.metrics.Placed.Inc()
	n.logger.Debug("stream placed", "stream", row.ID, "from", row.Leader, "to", to, "after_leader_epoch", row.LeaderEpoch)
	return nil
}

func (n *Node) transfersByStream() map[int64]layer.TransferRow {
	byStream := map[int64]layer.TransferRow{}
	for _, t := range n.view.Transfers() {
		byStream[t.Stream] = t
	}
	return byStream
}
