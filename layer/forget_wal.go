package layer

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// ForgetWAL clears the row of a log that is done, by the holder of the lease, who has swept what it left in the object store. ErrWALNotDone before FinishWAL, and
// ErrNotFenced for an epoch that may still act. A row that is gone already stays so.
func (s *Store) ForgetWAL(ctx context.Context, lease LeaseRef, dead NodeRef) error {
	return s.transact(ctx, "forget log of "+dead.String(), lease, func(t *tx) error {
		holder, other, read := t.lease(lease), t.node(dead), t.wal(dead)
		var left [2]kv.Range
		for i, space := range []string{spaceOpen, spaceInline} {
			begin, end := s.span(space, dead.ID, dead.Epoch)
			left[i] = t.GetRange(begin, end, kv.RangeOptions{Limit: 1})
		}
		if err := holder.held(); err != nil {
			return err
		}
		if err := other.gone(); err != nil {
			return err
		}
		row, ok, err := read.row.get()
		if err != nil || !ok {
			return err
		}
		if !row.Done {
			return fmt.Errorf("%w: of %s", ErrWALNotDone, dead)
		}
		for _, r := range left {
			rows, err := r.Get()
			if err != nil {
				return err
			}
			if len(rows) > 0 { // FinishWAL would not have let it be, nor anything after it
				return fmt.Errorf("%w: %s, though the log of %s is done", ErrCorruptRow, s.describe(rows[0].Key), dead)
			}
		}
		t.Clear(s.key(spaceWAL, dead.ID, dead.Epoch))
		return nil
	})
}
