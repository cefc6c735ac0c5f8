package layer

import (
	"context"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// PreparedRow is ("prepared", key): an object that is about to be written and is not yet taken in. JSON.
//
// Written by Prepare, before the bytes; cleared by the command that takes the object in, or by ExpirePrepared, which queues it for destruction when nothing refers to it.
type PreparedRow struct {
	Object string    `json:"object"`
	Node   NodeRef   `json:"node"`
	At     time.Time `json:"at"`
}

// maxPrepare bounds the objects of one preparation.
const maxPrepare = 1000

// Prepare announces objects that the node is about to write, under keys that nobody used before, so that a crash leaks none.
func (s *Store) Prepare(ctx context.Context, node NodeRef, objects []string, at time.Time) error {
	if len(objects) > maxPrepare {
		return invalid("%d objects, at most %d can be prepared at once", len(objects), maxPrepare)
	}
	for _, object := range objects {
		if err := (ObjectMeta{Object: object, Kind: DataObject}).validate(); err != nil {
			return err
		}
	}
	return s.transact(ctx, "prepare objects", node, func(t *tx) error {
		self := t.node(node)
		for _, object := range objects {
			t.setJSON(s.key(spacePrepared, object), PreparedRow{Object: object, Node: node, At: stamp(at)})
		}
		return self.alive()
	})
}

// preparedPage is how many rows ExpirePrepared looks at in one read.
const preparedPage = 1000

// ExpirePrepared ends up to limit preparations from before a time, longer ago than any write may take, by the clock of the lease holder. A commit
// that still wants the object is refused from then on with ErrNotPrepared. It returns how many.
func (s *Store) ExpirePrepared(ctx context.Context, lease LeaseRef, before time.Time, limit int) (int, error) {
	limit = min(max(limit, 1), s.bounds.buckets)
	expired, err := s.findPrepared(ctx, before, limit)
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	now, count := s.now(), 0
	err = s.transact(ctx, "expire preparations", lease, func(t *tx) error {
		count = 0
		holder, refs := t.lease(lease), t.references()
		rows := make([]future[PreparedRow], len(expired))
		for i, row := range expired {
			rows[i] = readJSON[PreparedRow](s, t, s.key(spacePrepared, row.Object))
			refs.load(row.Object)
		}
		if err := holder.held(); err != nil {
			return err
		}
		if err := refs.wait(); err != nil {
			return err
		}
		for _, read := range rows {
			row, ok, err := read.get()
			if err != nil {
				return err
			}
			if ok && row.At.Before(before) {
				refs.settle(row.Object)
				count++
			}
		}
		return refs.flush("preparation expired", now)
	})
	return count, err
}

// findPrepared looks through all preparations, which are few, for old ones.
func (s *Store) findPrepared(ctx context.Context, before time.Time, limit int) ([]PreparedRow, error) {
	var found []PreparedRow
	begin, end := s.span(spacePrepared)
	for {
		var page []PreparedRow
		err := s.read(ctx, "read preparations", func(tr kv.ReadTransaction) (err error) {
			page, err = rangeJSON[PreparedRow](s, tr.GetRange(begin, end, kv.RangeOptions{Limit: preparedPage}))
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, row := range page {
			if row.At.Before(before) {
				if found = append(found, row); len(found) == limit {
					return found, nil
				}
			}
		}
		if len(page) < preparedPage {
			return found, nil
		}
		begin = after(s.key(spacePrepared, page[len(page)-1].Object))
	}
}
