package layer

import (
	"context"
	"fmt"
)

// EndStream ends a stream for ever at an offset: no record will be at or after it. All records below are acknowledged, though not all need be in the index yet. One that was ended
// there before stays so; elsewhere: ErrStreamEnded.
func (s *Store) EndStream(ctx context.Context, by NodeRef, stream, epoch, at int64) error {
	return s.transact(ctx, fmt.Sprintf("end stream %d", stream), by, func(t *tx) error {
		self, read, last := t.node(by), t.stream(stream), t.lastEntry(stream)
		if err := self.alive(); err != nil {
			return err
		}
		row, err := read.openBy(by, epoch)
		if err != nil {
			return err
		}
		if row.Ended != nil {
			if *row.Ended != at {
				return fmt.Errorf("%w: stream %d at %d", ErrStreamEnded, stream, *row.Ended)
			}
			return nil
		}
		durable, err := last.durableEnd(row)
		if err != nil {
			return err
		}
		if at < durable {
			return invalid("stream %d: end at %d below its durable end %d", stream, at, durable)
		}
		old := row
		row.Ended = &at
		t.setStream(old, row)
		return nil
	})
}
