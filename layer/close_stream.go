package layer

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// CloseStream closes a stream that by has open at epoch. The caller has made durable, packed or adopted all that it acknowledged. ErrStaleStream when it
// is open otherwise, or was opened at another epoch since. A stream that is being deleted is closed, too.
func (s *Store) CloseStream(ctx context.Context, by NodeRef, stream, epoch int64) error {
	return s.transact(ctx, fmt.Sprintf("close stream %d", stream), by, func(t *tx) error {
		self, read := t.node(by), t.stream(stream)
		if err := self.alive(); err != nil {
			return err
		}
		row, ok, err := read.get()
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: %d", ErrStreamNotFound, stream)
		}
		if row.OpenBy.IsZero() && row.Epoch == epoch {
			return nil
		}
		if row.OpenBy != by || row.Epoch != epoch {
			return fmt.Errorf("%w: stream %d, node %s, epoch %d: it is %s by %s at epoch %d",
				ErrStaleStream, stream, by, epoch, row.State, row.OpenBy, row.Epoch)
		}
		t.closeStream(row)
		return nil
	})
}

func (t *tx) closeStream(row StreamRow) {
	old := row
	row.OpenBy = NodeRef{}
	if row.State == StreamOpen {
		row.State = StreamClosed
	}
	t.setStream(old, row)
}

// CloseStreamsOf closes up to limit streams that a dead node epoch has open. It must be fenced or replaced (ErrNotFenced), and its log sealed (ErrWALNotSealed), so
// that all that it ever acknowledged is in the index. more: call again.
func (s *Store) CloseStreamsOf(ctx context.Context, by, dead NodeRef, limit int) (closed []int64, more bool, err error) {
	limit = min(max(limit, 1), s.bounds.buckets)
	err = s.transact(ctx, "close streams of "+dead.String(), by, func(t *tx) error {
		self, other, log := t.node(by), t.node(dead), t.wal(dead)
		begin, end := s.span(spaceOpen, dead.ID, dead.Epoch)
		index := t.GetRange(begin, end, kv.RangeOptions{Limit: limit + 1})
		if err := self.alive(); err != nil {
			return err
		}
		if err := other.gone(); err != nil {
			return err
		}
		if wal, err := log.get(); err != nil {
			return err
		} else if wal.SealedAt == nil {
			return fmt.Errorf("%w: of %s", ErrWALNotSealed, dead)
		}
		keys, err := index.Get()
		if err != nil {
			return err
		}
		more = len(keys) > limit
		closed, err = t.closeIndexed(keys[:min(len(keys), limit)], dead)
		return err
	})
	return closed, more, err
}

func (t *tx) closeIndexed(keys []kv.KeyValue, dead NodeRef) ([]int64, error) {
	reads := make([]streamRead, len(keys))
	for i, row := range keys {
		ids, err := t.s.ints(row.Key, 3)
		if err != nil {
			return nil, err
		}
		reads[i] = t.stream(ids[2])
	}
	rows, err := waitStreams(reads)
	if err != nil {
		return nil, err
	}
	closed := make([]int64, len(rows))
	for i, row := range rows {
		if row.OpenBy != dead {
			return nil, fmt.Errorf("%w: the index says that stream %d is open by %s, its row says by %s", ErrCorruptRow, row.ID, dead, row.OpenBy)
		}
		t.closeStream(row)
		closed[i] = row.ID
	}
	return closed, nil
}
