package layer

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// walsPerRead bounds the rows of one read-only transaction.
const walsPerRead = 1000

// WALs reads the rows of a node's logs that ForgetWAL has left, oldest first; of all nodes for 0.
func (s *Store) WALs(ctx context.Context, node int64) ([]WALRow, error) {
	return s.walPages(ctx, node, func(_ kv.ReadTransaction, page []WALRow) ([]WALRow, error) { return page, nil })
}

// DeadWALs reads the rows of the logs that there are to take over: not done, of epochs of a node (0: of all nodes) that are fenced or replaced.
func (s *Store) DeadWALs(ctx context.Context, node int64) ([]WALRow, error) {
	return s.walPages(ctx, node, s.deadOf)
}

// walPages reads rows of logs in as many transactions as it takes, and gives those that pick picks of each page in the same transaction.
func (s *Store) walPages(ctx context.Context, node int64, pick func(kv.ReadTransaction, []WALRow) ([]WALRow, error)) (rows []WALRow, err error) {
	begin, end := s.span(spaceWAL)
	if node != 0 {
		begin, end = s.span(spaceWAL, node)
	}
	for {
		var page, picked []WALRow
		err := s.read(ctx, fmt.Sprintf("read logs of node %d", node), func(tr kv.ReadTransaction) (err error) {
			if page, err = rangeJSON[WALRow](s, tr.GetRange(begin, end, kv.RangeOptions{Limit: walsPerRead})); err != nil {
				return err
			}
			picked, err = pick(tr, page)
			return err
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, picked...)
		if len(page) < walsPerRead {
			return rows, nil
		}
		last := page[len(page)-1].Node
		begin = after(s.key(spaceWAL, last.ID, last.Epoch))
	}
}

// deadOf gives the rows of a page whose logs are not done and whose node epochs can never act again.
func (s *Store) deadOf(tr kv.ReadTransaction, page []WALRow) (dead []WALRow, err error) {
	var unfinished []WALRow
	var nodes []nodeRead
	for _, row := range page {
		if !row.Done {
			unfinished, nodes = append(unfinished, row), append(nodes, s.readNode(tr, row.Node))
		}
	}
	for i, row := range unfinished {
		node, ok, err := nodes[i].get()
		if err != nil {
			return nil, err
		}
		if node.gone(row.Node, ok) == nil {
			dead = append(dead, row)
		}
	}
	return dead, nil
}
