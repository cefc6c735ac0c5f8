package layer

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer/kv"
)

// DeleteTable frees a table's name and marks its streams, so that every command refuses them; DestroyStreams does the rest, also for streams that a
// crash left unmarked. ErrTableNotFound when there is none or another request is deleting it.
func (s *Store) DeleteTable(ctx context.Context, by NodeRef, table int64, requestID uuid.UUID) error {
	buckets := -1 // how many there are to mark, once an earlier run has decided
	err := s.transact(ctx, "delete table", by, func(t *tx) error {
		self, read := t.node(by), t.table(table)
		if err := self.alive(); err != nil {
			return err
		}
		row, ok, err := read.get()
		if err != nil {
			return err
		}
		if !ok && buckets >= 0 {
			return nil // an earlier run was committed, and all is gone by now
		}
		if !ok || row.State == TableDeleting && row.remember(requestID) {
			return fmt.Errorf("%w: %d", ErrTableNotFound, table)
		}
		buckets = row.Buckets
		if row.State == TableDeleting {
			return nil
		}
		row.State = TableDeleting
		row.remember(requestID)
		t.Clear(s.key(spaceTableName, row.Name))
		t.Set(s.key(spaceDeleting, row.ID), []byte{})
		t.setTable(row)
		return t.markDeleting(table, 0)
	})
	if err != nil {
		return err
	}
	for from := s.bounds.buckets; from < buckets; from += s.bounds.buckets {
		err := s.transact(ctx, "mark streams of deleted table", by, func(t *tx) error {
			self := t.node(by)
			if err := self.alive(); err != nil {
				return err
			}
			return t.markDeleting(table, from)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// markDeleting marks the streams of the buckets from a given one on, as many as one transaction takes.
func (t *tx) markDeleting(table int64, from int) error {
	_, end := t.s.span(spaceBucket, table)
	index, err := t.GetRange(t.s.key(spaceBucket, table, from), end, kv.RangeOptions{Limit: t.s.bounds.buckets}).Get()
	if err != nil {
		return err
	}
	reads := make([]streamRead, len(index))
	for i, kv := range index {
		row, err := decodeJSON[bucketRow](t.s, kv.Key, kv.Value)
		if err != nil {
			return err
		}
		reads[i] = t.stream(row.Stream)
	}
	rows, err := waitStreams(reads)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.State != StreamDeleting {
			old := row
			row.State = StreamDeleting
			t.setStream(old, row)
		}
	}
	return nil
}
