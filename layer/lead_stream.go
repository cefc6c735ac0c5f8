package layer

import (
	"context"
	"fmt"
)

// LeadBucket makes a node the leader of a stream at the next leader epoch, whoever has it open; a pending transfer ends. Conditional on the leader epoch that the caller
// saw (ErrStaleLeader); the target must be alive (ErrTargetGone).
func (s *Store) LeadBucket(ctx context.Context, lease LeaseRef, stream, to, fromLeaderEpoch int64) (row StreamRow, err error) {
	err = s.transact(ctx, fmt.Sprintf("lead stream %d", stream), lease, func(t *tx) error {
		holder, read, target, transfer := t.lease(lease), t.stream(stream), t.node(NodeRef{ID: to}), t.transfer(stream)
		if err := holder.held(); err != nil {
			return err
		}
		if row, err = read.live(); err != nil {
			return err
		}
		if row.LeaderEpoch == fromLeaderEpoch+1 && row.Leader == to {
			return nil
		}
		if row.LeaderEpoch != fromLeaderEpoch {
			return staleLeader(row, fromLeaderEpoch)
		}
		if err := target.present(); err != nil {
			return err
		}
		return t.lead(&row, to, transfer)
	})
	return row, err
}

// LeadAgain gives a leader the next leader epoch, because it restarted and its stream is closed at the current one. A pending transfer ends. ErrStaleLeader when
// it does not lead at that epoch; ErrStreamOpen when the stream is open, by whomever.
func (s *Store) LeadAgain(ctx context.Context, by NodeRef, stream, fromLeaderEpoch int64) (row StreamRow, err error) {
	err = s.transact(ctx, fmt.Sprintf("lead stream %d again", stream), by, func(t *tx) error {
		self, read, transfer := t.node(by), t.stream(stream), t.transfer(stream)
		if err := self.alive(); err != nil {
			return err
		}
		if row, err = read.live(); err != nil {
			return err
		}
		if row.LeaderEpoch == fromLeaderEpoch+1 && row.Leader == by.ID {
			return nil
		}
		if row.LeaderEpoch != fromLeaderEpoch || row.Leader != by.ID {
			return staleLeader(row, fromLeaderEpoch)
		}
		if row.State != StreamClosed {
			return fmt.Errorf("%w: %d by %s", ErrStreamOpen, stream, row.OpenBy)
		}
		return t.lead(&row, by.ID, transfer)
	})
	return row, err
}

// lead moves the leadership of row and ends a transfer that is pending.
func (t *tx) lead(row *StreamRow, to int64, transfer future[TransferRow]) error {
	_, pending, err := transfer.get()
	if err != nil {
		return err
	}
	if pending {
		t.clearTransfer(row.ID)
	}
	old := *row
	row.Leader = to
	row.LeaderEpoch++
	t.setStream(old, *row)
	return nil
}

func staleLeader(row StreamRow, epoch int64) error {
	return fmt.Errorf("%w: stream %d: leader epoch %d wanted, it is led by %d at %d", ErrStaleLeader, row.ID, epoch, row.Leader, row.LeaderEpoch)
}

// present waits, and is nil when the node that a command names as a target is alive at whatever epoch.
func (r nodeRead) present() error {
	row, ok, err := r.get()
	if err != nil {
		return err
	}
	if !ok || row.Fenced {
		return fmt.Errorf("%w: node %d: registered %t, fenced %t", ErrTargetGone, r.ref.ID, ok, row.Fenced)
	}
	return nil
}
