package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/engine"
)

// syncTask compares the view with what this node serves, and opens and closes streams until they agree. A look costs one pass over the streams that the
// node leads; a stream on which there is nothing to do costs nothing more.
type syncTask struct {
	node *Node
	loop *loop
	held *holdings
	pool *pool
	cost atomic.Int64 // of the last look, nanoseconds
}

func newSyncTask(n *Node) *syncTask {
	s := &syncTask{node: n, held: newHoldings(), pool: newPool(n.options.SyncConcurrency, &n.wg)}
	s.loop = newLoop("sync", n.options.SyncInterval, n.logger, s.step)
	return s
}

// errHeld: another live node has the stream open and has not yet seen that it no longer leads it. The next look tries again.
var errHeld = errors.New("stream is still open by another node")

// step is the step of the sync loop: it looks, and leaves the work to the pool.
func (s *syncTask) step(ctx context.Context) error {
	if s.node.State() == StateFailed {
		return nil // it closes nothing
	}
	began := time.Now()
	defer func() { s.cost.Store(int64(time.Since(began))) }()
	led := s.node.view.Led()
	known := make(map[int64]struct{}, len(led))
	for _, row := range led {
		known[row.ID] = struct{}{}
		if s.settled(row) {
			continue
		}
		s.pool.submit(ctx, row.ID, func(ctx context.Context) { s.reconcile(ctx, row.ID) })
	}
	for _, stream := range s.held.all() {
		if _, ok := known[stream.ID()]; !ok {
			s.pool.submit(ctx, stream.ID(), func(ctx context.Context) { s.reconcile(ctx, stream.ID()) })
		}
	}
	s.node.metrics.Streams.Set(float64(s.held.count()))
	return nil
}

// settled tells whether there is nothing to do on a stream.
func (s *syncTask) settled(row layer.StreamRow) bool {
	epoch, closing, held := s.held.epoch(row.ID)
	switch {
	case held && closing:
		return false
	case s.moving(row):
		return false
	case !s.wanted(row):
		return !held && !(row.OpenBy == s.node.ref && row.State == layer.StreamOpen)
	}
	return held && epoch >= row.LeaderEpoch // above: the view has not come to what this node did itself
}

// wanted tells whether this node should serve a stream.
func (s *syncTask) wanted(row layer.StreamRow) bool {
	return row.Leader == s.node.ref.ID && row.State != layer.StreamDeleting && s.node.State() < StateStopping && !s.moving(row)
}

// moving tells whether a transfer of a stream that this node leads is pending.
func (s *syncTask) moving(row layer.StreamRow) bool {
	transfer, pending := s.node.view.Transfer(row.ID)
	return pending && row.State != layer.StreamDeleting && row.Leader == s.node.ref.ID && transfer.From == row.Leader && transfer.LeaderEpoch == row.LeaderEpoch
}

const (
	reconcileTries = 6                     // of one job; the next look goes on
	reconcilePause = 50 * time.Millisecond // after the first failure; it doubles
)

// reconcile brings one stream to where the view wants it.
func (s *syncTask) reconcile(ctx context.Context, id int64) {
	pause := reconcilePause
	for try := 1; ; try++ {
		err := s.reconcileOnce(ctx, id)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.Is(err, errHeld):
			s.node.logger.Debug("stream is held by another node", "stream", id, "error", err)
			return
		case s.node.failIfFenced("sync", err):
			return
		case try == reconcileTries:
			s.node.logger.Warn("stream could not be brought to where it should be, it is tried again", "stream", id, "tries", try, "error", err)
			return
		}
		s.node.logger.Debug("stream is tried again", "stream", id, "try", try, "error", err)
		if errors.Is(err, layer.ErrStaleLeader) || errors.Is(err, layer.ErrStaleStream) || errors.Is(err, layer.ErrStreamNotFound) {
			s.node.readForward(ctx) // the view was behind
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			pause *= 2
		}
	}
}

func (s *syncTask) reconcileOnce(ctx context.Context, id int64) error {
	row, err := s.node.view.Stream(ctx, id)
	if errors.Is(err, layer.ErrStreamNotFound) {
		return s.close(ctx, layer.StreamRow{ID: id, State: layer.StreamDeleting})
	}
	if err != nil {
		return err
	}
	if s.settled(row) {
		return nil
	}
	if _, _, held := s.held.epoch(id); held {
		return s.close(ctx, row) // the look after it opens it again when it is wanted
	}
	if !s.wanted(row) {
		return s.closeUnheld(ctx, row)
	}
	return s.open(ctx, row)
}

// open follows the sync table of design.md section 6 until the stream is open here.
func (s *syncTask) open(ctx context.Context, row layer.StreamRow) error {
	began := time.Now()
	row, err := s.lead(ctx, row)
	if err == nil {
		var stream *engine.Stream
		if stream, err = s.node.engine.Open(ctx, row); err == nil {
			s.held.add(stream)
			s.node.metrics.OpenTime.Observe(time.Since(began).Seconds())
			s.node.logger.Debug("stream opened", "stream", row.ID, "table", row.Table, "bucket", row.Bucket, "epoch", row.Epoch, "start", stream.Start(), "end", stream.End(), "took", time.Since(began).Round(time.Millisecond))
		}
	}
	if !errors.Is(err, errHeld) {
		s.node.metrics.Opens.WithLabelValues(result(err)).Inc()
	}
	return err
}

// lead makes the stream's row say that this node epoch has it open, and gives the row.
func (s *syncTask) lead(ctx context.Context, row layer.StreamRow) (layer.StreamRow, error) {
	n := s.node
	if row.OpenBy == n.ref && row.Epoch == row.LeaderEpoch {
		return row, nil // opened before; the answer was lost, or the engine could not load it then
	}
	row, err := s.vacate(ctx, row)
	if err != nil {
		return row, err
	}
	if row.Epoch == row.LeaderEpoch {
		if row, err = n.layer.LeadAgain(ctx, n.ref, row.ID, row.LeaderEpoch); err != nil {
			return row, fmt.Errorf("lead stream %d again: %w", row.ID, err)
		}
	}
	opened, err := n.layer.OpenStream(ctx, n.ref, row.ID, row.LeaderEpoch)
	if err != nil {
		return row, fmt.Errorf("open stream %d at leader epoch %d: %w", row.ID, row.LeaderEpoch, err)
	}
	return opened, nil
}

// vacate gives the row of a stream that is closed: one that this node does not hold though it opened it, is closed; for one of a dead node a takeover begins,
// whose end brings the next look.
func (s *syncTask) vacate(ctx context.Context, row layer.StreamRow) (layer.StreamRow, error) {
	n := s.node
	switch {
	case row.State != layer.StreamOpen || broken("epoch"):
		return row, nil
	case row.OpenBy != n.ref:
		if n.deadInView(row.OpenBy) {
			n.beginTakeover(row.OpenBy)
		}
		return row, fmt.Errorf("%w: stream %d by node %v", errHeld, row.ID, row.OpenBy)
	}
	if err := n.layer.CloseStream(ctx, n.ref, row.ID, row.Epoch); err != nil && !gone(err) {
		return row, fmt.Errorf("close stream %d of an earlier leadership: %w", row.ID, err)
	}
	fresh, err := n.layer.Stream(ctx, row.ID)
	switch {
	case err != nil:
		return row, fmt.Errorf("read stream %d: %w", row.ID, err)
	case fresh.State != layer.StreamClosed:
		return row, fmt.Errorf("stream %d is %s by %v: %w", row.ID, fresh.State, fresh.OpenBy, layer.ErrStaleStream)
	}
	return fresh, nil
}

// close ends serving a stream that is held: what it buffers is made durable and adopted, then its row says closed.
func (s *syncTask) close(ctx context.Context, row layer.StreamRow) error {
	stream := s.held.refuse(row.ID)
	if stream == nil {
		return nil
	}
	if row.State == layer.StreamDeleting {
		s.node.engine.Forget(stream)
		s.held.remove(stream)
		s.node.logger.Debug("deleted stream dropped", "stream", row.ID)
		return nil
	}
	if err := s.release(ctx, stream); err != nil {
		return err
	}
	if err := s.completeTransfer(ctx, row.ID, stream.Epoch()); err != nil {
		return err
	}
	s.loop.trigger() // it may have to be opened again at a newer leader epoch
	return nil
}

// release closes a stream in the engine, so that everything in it is in the index, and then its row.
func (s *syncTask) release(ctx context.Context, stream *engine.Stream) error {
	err := s.node.engine.Close(ctx, stream)
	if err == nil {
		err = s.node.layer.CloseStream(ctx, s.node.ref, stream.ID(), stream.Epoch())
		if gone(err) {
			err = nil
		}
	}
	s.node.metrics.Closes.WithLabelValues(result(err)).Inc()
	if err != nil {
		return fmt.Errorf("close %v: %w", stream, err)
	}
	s.held.remove(stream)
	s.node.logger.Debug("stream closed", "stream", stream.ID(), "epoch", stream.Epoch(), "end", stream.End())
	return nil
}

// gone tells whether a close was refused because there is nothing to close: an earlier try did it, or the table is gone.
func gone(err error) bool {
	return errors.Is(err, layer.ErrStaleStream) || errors.Is(err, layer.ErrStreamNotFound)
}

// closeUnheld closes the row of a stream that this node epoch opened and does not hold, and hands over one that is to move.
func (s *syncTask) closeUnheld(ctx context.Context, row layer.StreamRow) error {
	row, err := s.vacate(ctx, row)
	if err != nil {
		return err
	}
	if s.moving(row) && row.Epoch < row.LeaderEpoch { // never opened since it came here: a move begins at an epoch at which it was closed
		if _, err := s.node.layer.OpenStream(ctx, s.node.ref, row.ID, row.LeaderEpoch); err != nil {
			return fmt.Errorf("open stream %d, which is to move: %w", row.ID, err)
		}
		if err := s.node.layer.CloseStream(ctx, s.node.ref, row.ID, row.LeaderEpoch); err != nil {
			return fmt.Errorf("close stream %d, which is to move: %w", row.ID, err)
		}
	}
	if err := s.completeTransfer(ctx, row.ID, row.LeaderEpoch); err != nil {
		return err
	}
	s.node.readForward(ctx)
	return nil
}

// completeTransfer makes the target of a pending transfer the leader of a stream that this node has closed at a leader epoch. When the target is dead the
// transfer is given up, and the stream is opened here again.
func (s *syncTask) completeTransfer(ctx context.Context, stream, epoch int64) error {
	n := s.node
	transfer, pending := n.view.Transfer(stream)
	if !pending || transfer.From != n.ref.ID {
		return nil
	}
	row, err := n.layer.CompleteTransfer(ctx, n.ref, stream, epoch)
	switch {
	case errors.Is(err, layer.ErrTransferNotFound):
		n.readForward(ctx) // it was cancelled, or completed by an earlier try
		return nil
	case errors.Is(err, layer.ErrTargetGone):
		n.logger.Warn("target of a transfer is gone, the transfer is given up", "stream", stream, "to", transfer.To)
		if err := n.layer.CancelTransfer(ctx, n.ref, transfer); err != nil {
			return fmt.Errorf("cancel transfer of stream %d to node %d: %w", stream, transfer.To, err)
		}
	case err != nil:
		return fmt.Errorf("complete transfer of stream %d to node %d: %w", stream, transfer.To, err)
	default:
		n.logger.Info("transfer completed", "stream", stream, "to", row.Leader, "leader_epoch", row.LeaderEpoch)
	}
	n.readForward(ctx)
	return nil
}

// followPause is the least time between two looks that changes of the view bring, and followShare the share of the time that looks may
// take: opening ten thousand streams makes as many changes.
const (
	followPause = 10 * time.Millisecond
	followShare = 10
)

// follow triggers a look at each change of the view.
func (s *syncTask) follow(ctx context.Context) {
	for {
		changed := s.node.view.Changed()
		s.loop.trigger()
		sleep(ctx, max(followPause, followShare*time.Duration(s.cost.Load())))
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
