package layer

import (
	"context"

	"github.com/varvedb/varve/layer/kv"
)

// CounterRow is ("counter", name): the next id that was never given out, from 1. JSON. Written by AllocateIDs. It never dies.
type CounterRow struct {
	Next int64 `json:"next"`
}

// maxAllocation bounds one allocation of ids.
const maxAllocation = 1_000_000

// AllocateIDs takes the n ids from first on, which nobody else gets. An allocation whose outcome was unknown wastes ids and repeats none.
func (s *Store) AllocateIDs(ctx context.Context, counter string, n int64) (first int64, err error) {
	if n < 1 || n > maxAllocation || counter == "" || len(counter) > 100 {
		return 0, invalid("allocation of %d ids of counter %q", n, counter)
	}
	err = s.transact(ctx, "allocate ids of "+counter, name("anyone"), func(t *tx) error {
		row, ok, err := readJSON[CounterRow](s, t, s.key(spaceCounter, counter)).get()
		if err != nil {
			return err
		}
		if !ok {
			row.Next = 1
		}
		first = row.Next
		t.setJSON(s.key(spaceCounter, counter), CounterRow{Next: first + n})
		return nil
	})
	return first, err
}

// IDs gives out ids of one counter from blocks, so that the counter's row is touched once per block. Ids of a block that was not used up are lost.
type IDs struct {
	store   *Store
	counter string
	block   int64
	turn    chan struct{} // holds one token; its owner may touch what follows
	next    int64
	end     int64
}

// NewIDs gives out ids of a counter in blocks of the given size.
func NewIDs(store *Store, counter string, block int64) *IDs {
	i := &IDs{store: store, counter: counter, block: block, turn: make(chan struct{}, 1)}
	i.turn <- struct{}{}
	return i
}

// Next gives one id.
func (i *IDs) Next(ctx context.Context) (int64, error) {
	ids, err := i.Take(ctx, 1)
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// Take gives n ids in rising order, not always consecutive.
func (i *IDs) Take(ctx context.Context, n int) ([]int64, error) {
	select {
	case <-i.turn:
		defer func() { i.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ids := make([]int64, 0, n)
	for len(ids) < n {
		if i.next == i.end {
			size := max(i.block, int64(n-len(ids)))
			first, err := i.store.AllocateIDs(ctx, i.counter, size)
			if err != nil {
				return nil, err
			}
			i.next, i.end = first, first+size
		}
		ids = append(ids, i.next)
		i.next++
	}
	return ids, nil
}

// Counter reads how far a counter got: every id below was given out.
func (s *Store) Counter(ctx context.Context, counter string) (next int64, err error) {
	err = s.read(ctx, "read counter "+counter, func(tr kv.ReadTransaction) error {
		row, ok, err := readJSON[CounterRow](s, tr, s.key(spaceCounter, counter)).get()
		next = row.Next
		if !ok {
			next = 1
		}
		return err
	})
	return next, err
}
