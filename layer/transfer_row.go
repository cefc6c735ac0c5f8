package layer

import (
	"context"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// TransferRow is ("transfer", stream): a planned move of a stream. JSON.
//
// Written by BeginTransfer; cleared by CompleteTransfer, CancelTransfer, LeadBucket and LeadAgain (which override it) and DestroyStreams.
type TransferRow struct {
	Stream      int64     `json:"stream"`
	From        int64     `json:"from"`         // node id
	To          int64     `json:"to"`           // node id
	LeaderEpoch int64     `json:"leader_epoch"` // at which From leads
	At          time.Time `json:"at"`
}

func (t *tx) transfer(stream int64) future[TransferRow] {
	return readJSON[TransferRow](t.s, t, t.s.key(spaceTransfer, stream))
}

func (t *tx) clearTransfer(stream int64) {
	t.Clear(t.s.key(spaceTransfer, stream))
	t.changed(spaceTransfer, stream, "", nil)
}

// BeginTransfer plans a move of a stream from its leader at a leader epoch (ErrStaleLeader) to a live node (ErrTargetGone). The plan routes new requests; the source drains, closes and
// completes. ErrTransferPending when another one is planned.
func (s *Store) BeginTransfer(ctx context.Context, by NodeRef, stream, to, fromLeaderEpoch int64, at time.Time) (row TransferRow, err error) {
	err = s.transact(ctx, fmt.Sprintf("begin transfer of stream %d", stream), by, func(t *tx) error {
		self, read, target, pending := t.node(by), t.stream(stream), t.node(NodeRef{ID: to}), t.transfer(stream)
		if err := self.alive(); err != nil {
			return err
		}
		current, err := read.live()
		if err != nil {
			return err
		}
		if current.LeaderEpoch != fromLeaderEpoch {
			return staleLeader(current, fromLeaderEpoch)
		}
		if current.Leader == to {
			return invalid("transfer of stream %d to its leader %d", stream, to)
		}
		var ok bool
		if row, ok, err = pending.get(); err != nil {
			return err
		}
		if ok && row.To == to {
			return nil
		}
		if ok {
			return fmt.Errorf("%w: stream %d from %d to %d", ErrTransferPending, stream, row.From, row.To)
		}
		if err := target.present(); err != nil {
			return err
		}
		row = TransferRow{Stream: stream, From: current.Leader, To: to, LeaderEpoch: fromLeaderEpoch, At: stamp(at)}
		t.setJSON(s.key(spaceTransfer, stream), row)
		t.changed(spaceTransfer, stream, "", row)
		return nil
	})
	return row, err
}

// CompleteTransfer makes the target of the pending transfer the leader at the next leader epoch, by the source, which has closed the stream at epoch. ErrTransferNotFound when no
// transfer from by is pending at that epoch; ErrTargetGone when the target died meanwhile: cancel it then.
func (s *Store) CompleteTransfer(ctx context.Context, by NodeRef, stream, epoch int64) (row StreamRow, err error) {
	err = s.transact(ctx, fmt.Sprintf("complete transfer of stream %d", stream), by, func(t *tx) error {
		self, read, pending := t.node(by), t.stream(stream), t.transfer(stream)
		if err := self.alive(); err != nil {
			return err
		}
		if row, err = read.live(); err != nil {
			return err
		}
		plan, ok, err := pending.get()
		if err != nil {
			return err
		}
		if !ok && row.LeaderEpoch == epoch+1 && row.Leader != by.ID {
			return nil // an earlier run
		}
		if !ok || plan.From != by.ID || plan.LeaderEpoch != epoch || row.LeaderEpoch != epoch {
			return fmt.Errorf("%w: of stream %d from %s at epoch %d", ErrTransferNotFound, stream, by, epoch)
		}
		if row.State != StreamClosed || row.Epoch != epoch {
			return fmt.Errorf("%w: %d is %s by %s at epoch %d", ErrStreamOpen, stream, row.State, row.OpenBy, row.Epoch)
		}
		if err := t.node(NodeRef{ID: plan.To}).present(); err != nil {
			return err
		}
		return t.lead(&row, plan.To, pending)
	})
	return row, err
}

// CancelTransfer drops a pending transfer. One that is not pending any more is left as it is.
func (s *Store) CancelTransfer(ctx context.Context, by NodeRef, transfer TransferRow) error {
	return s.transact(ctx, fmt.Sprintf("cancel transfer of stream %d", transfer.Stream), by, func(t *tx) error {
		self, pending := t.node(by), t.transfer(transfer.Stream)
		if err := self.alive(); err != nil {
			return err
		}
		row, ok, err := pending.get()
		if err != nil || !ok || row.To != transfer.To || row.LeaderEpoch != transfer.LeaderEpoch {
			return err
		}
		t.clearTransfer(transfer.Stream)
		return nil
	})
}

// Transfers reads all pending ones, by stream.
func (s *Store) Transfers(ctx context.Context) (rows []TransferRow, err error) {
	err = s.read(ctx, "read transfers", func(tr kv.ReadTransaction) error {
		begin, end := s.span(spaceTransfer)
		rows, err = rangeJSON[TransferRow](s, tr.GetRange(begin, end, kv.RangeOptions{}))
		return err
	})
	return rows, err
}
