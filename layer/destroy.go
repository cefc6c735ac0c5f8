package layer

import (
	"context"
	"math"
	"time"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// Doomed is ("destroy", versionstamp): an object that nothing refers to any more. JSON.
//
// Written by whatever ended the last thing that kept it, in the same transaction; cleared by Destroyed, after the bytes are gone.
type Doomed struct {
	Versionstamp tuple.Versionstamp `json:"-"`
	Object       string             `json:"object"`
	At           time.Time          `json:"at"` // by the clock of who dropped it
	Reason       string             `json:"reason"`
}

// doom queues an object for destruction.
func (t *tx) doom(object, reason string, at time.Time) error {
	if t.doomed == math.MaxUint16 {
		return invalid("more than %d objects doomed in one transaction", math.MaxUint16)
	}
	key, err := tuple.Tuple{spaceDestroy, tuple.IncompleteVersionstamp(t.doomed)}.PackWithVersionstamp(t.s.prefix)
	if err != nil {
		return err
	}
	value, err := encodeRow(Doomed{Object: object, At: stamp(at), Reason: reason})
	if err != nil {
		return err
	}
	t.doomed++
	t.SetVersionstampedKey(key, value)
	return nil
}

// DestroyQueue reads up to limit rows from the front of the queue that were queued before a time, which leaves readers their grace. It stops at the first that is younger.
func (s *Store) DestroyQueue(ctx context.Context, limit int, before time.Time) (doomed []Doomed, err error) {
	err = s.read(ctx, "read destroy queue", func(tr kv.ReadTransaction) error {
		doomed = nil
		begin, end := s.span(spaceDestroy)
		rows, err := tr.GetRange(begin, end, kv.RangeOptions{Limit: limit}).Get()
		if err != nil {
			return err
		}
		for _, row := range rows {
			d, err := s.decodeDoomed(row.Key, row.Value)
			if err != nil {
				return err
			}
			if !d.At.Before(before) {
				return nil
			}
			doomed = append(doomed, d)
		}
		return nil
	})
	return doomed, err
}

func (s *Store) decodeDoomed(key, value []byte) (Doomed, error) {
	d, err := decodeJSON[Doomed](s, key, value)
	if err != nil {
		return d, err
	}
	d.Versionstamp, err = s.stampOfKey(key)
	return d, err
}

// Destroyed clears rows of the queue whose objects' bytes the lease holder has deleted.
func (s *Store) Destroyed(ctx context.Context, lease LeaseRef, doomed []Doomed) error {
	return s.transact(ctx, "clear destroyed objects", lease, func(t *tx) error {
		holder := t.lease(lease)
		for _, d := range doomed {
			t.Clear(s.key(spaceDestroy, d.Versionstamp))
		}
		return holder.held()
	})
}
