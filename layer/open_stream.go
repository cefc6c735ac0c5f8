package layer

import (
	"context"
	"fmt"
)

// OpenStream opens a stream at the leader epoch at which by leads it: the fence against every earlier opener. Refused with ErrStaleLeader when it does not lead at
// that epoch, or when the stream was open at that epoch before (LeadAgain gives a fresh one); ErrStreamOpen when somebody else has it open.
func (s *Store) OpenStream(ctx context.Context, by NodeRef, stream, leaderEpoch int64) (row StreamRow, err error) {
	err = s.transact(ctx, fmt.Sprintf("open stream %d", stream), by, func(t *tx) error {
		self, read := t.node(by), t.stream(stream)
		if err := self.alive(); err != nil {
			return err
		}
		if row, err = read.live(); err != nil {
			return err
		}
		if row.State == StreamOpen && (row.OpenBy == by || !broken("epoch")) {
			if row.OpenBy == by && row.Epoch == leaderEpoch {
				return nil
			}
			return fmt.Errorf("%w: %d by %s at epoch %d", ErrStreamOpen, stream, row.OpenBy, row.Epoch)
		}
		if stale := row.Leader != by.ID || row.LeaderEpoch != leaderEpoch || row.Epoch >= leaderEpoch; stale && !broken("epoch") {
			return fmt.Errorf("%w (last open at %d)", staleLeader(row, leaderEpoch), row.Epoch)
		}
		if _, err := t.table(row.Table).active(); err != nil {
			return err
		}
		old := row
		row.State, row.OpenBy, row.Epoch = StreamOpen, by, leaderEpoch
		t.setStream(old, row)
		return nil
	})
	return row, err
}
