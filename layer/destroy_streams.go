package layer

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// DestroyStreams does for tables that are being deleted what DeleteTable leaves: streams with their index entries, producers, transfers and indexes, then the table
// row. Objects that lose their last reference are queued. It works in bounded transactions until it has removed about limit streams or
// nothing is left; more: call again.
func (s *Store) DestroyStreams(ctx context.Context, lease LeaseRef, limit int) (done int, more bool, err error) {
	for done < limit {
		n, left, err := s.destroySome(ctx, lease)
		if err != nil {
			return done, true, err
		}
		done += n
		if !left {
			return done, false, nil
		}
	}
	return done, true, nil
}

// destroySome is one step at the first table that is being deleted; left is false when there was none.
func (s *Store) destroySome(ctx context.Context, lease LeaseRef) (done int, left bool, err error) {
	err = s.transact(ctx, "destroy streams", lease, func(t *tx) error {
		done, left = 0, true
		holder := t.lease(lease)
		begin, end := s.span(spaceDeleting)
		tables := t.GetRange(begin, end, kv.RangeOptions{Limit: 1})
		if err := holder.held(); err != nil {
			return err
		}
		found, err := tables.Get()
		if err != nil {
			return err
		}
		if len(found) == 0 {
			left = false
			return nil
		}
		table, err := s.ints(found[0].Key, 1)
		if err != nil {
			return err
		}
		done, err = t.destroyOf(table[0])
		return err
	})
	return done, left, err
}

// destroyOf removes streams of one table, or the table's row when it has none left.
func (t *tx) destroyOf(table int64) (int, error) {
	read := t.table(table)
	begin, end := t.s.span(spaceBucket, table)
	buckets := t.GetRange(begin, end, kv.RangeOptions{Limit: t.s.bounds.destroyStreams})
	row, ok, err := read.get()
	if err != nil {
		return 0, err
	}
	if ok && row.State != TableDeleting {
		return 0, fmt.Errorf("%w: table %d is listed for deletion, its row says %q", ErrCorruptRow, table, row.State)
	}
	index, err := buckets.Get()
	if err != nil {
		return 0, err
	}
	if len(index) == 0 {
		t.Clear(t.s.key(spaceDeleting, table))
		t.Clear(t.s.key(spaceTable, table))
		t.changed(spaceTable, table, "", nil)
		return 0, nil
	}
	return t.destroyBuckets(index)
}

// doomedStream is a stream that is being destroyed, and its first index entries.
type doomedStream struct {
	row      streamRead
	entries  kv.Range
	transfer future[TransferRow]
}

func (t *tx) destroyBuckets(index []kv.KeyValue) (int, error) {
	reads := make([]doomedStream, len(index))
	share := max(1, t.s.bounds.destroyEntries/len(index)) // of each stream
	for i, kvs := range index {
		bucket, err := decodeJSON[bucketRow](t.s, kvs.Key, kvs.Value)
		if err != nil {
			return 0, err
		}
		begin, end := t.s.span(spaceObject, bucket.Stream)
		reads[i] = doomedStream{
			row: t.stream(bucket.Stream), transfer: t.transfer(bucket.Stream),
			entries: t.GetRange(begin, end, kv.RangeOptions{Limit: share}),
		}
	}
	var dropped []ObjectEntry
	done := 0
	for _, r := range reads {
		entries, err := t.s.decodeEntries(r.entries)
		if err != nil {
			return 0, err
		}
		dropped = append(dropped, entries...)
		finished, err := t.destroyStream(r, len(entries) < share)
		if err != nil {
			return 0, err
		}
		if finished {
			done++
		}
	}
	return done, t.dropEntries(dropped, "table deleted", t.s.now())
}

// destroyStream removes the rows of a stream whose index has been emptied, or marks it meanwhile.
func (t *tx) destroyStream(r doomedStream, emptied bool) (bool, error) {
	rows, err := waitStreams([]streamRead{r.row})
	if err != nil {
		return false, err
	}
	row := rows[0]
	if !emptied {
		if row.State != StreamDeleting {
			old := row
			row.State = StreamDeleting
			t.setStream(old, row)
		}
		return false, nil
	}
	if _, pending, err := r.transfer.get(); err != nil {
		return false, err
	} else if pending {
		t.clearTransfer(row.ID)
	}
	t.ClearRange(t.s.span(spaceProducer, row.ID))
	t.clearStream(row)
	return true, nil
}
