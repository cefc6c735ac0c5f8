package layer

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/varvedb/varve/layer/kv"
)

// ("owned", node, stream) is the index of streams by leader, node 0 for those without; its values are empty. ("load", node) counts them, 8 bytes little
// endian, by atomic add, so that no two commands conflict on it. ("open", node, node_epoch, stream) is the index of streams by opener,
// its values are empty.
//
// Written with every change of a stream row's leader or opener, by setStream alone; cleared likewise, and with the stream row. A load
// that fell to zero stays.

func (t *tx) addLoad(node, n int64) {
	t.Add(t.s.key(spaceLoad, node), binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

func (s *Store) decodeLoad(key, value []byte) (int64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: %s: %d bytes, want 8", ErrCorruptRow, s.describe(key), len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// moveOwned keeps the indexes with a stream row that changes from old to new; an ID of zero means no row.
func (t *tx) moveOwned(old, new StreamRow) {
	if old.ID != 0 && (new.ID == 0 || old.Leader != new.Leader) {
		t.Clear(t.s.key(spaceOwned, old.Leader, old.ID))
		t.addLoad(old.Leader, -1)
	}
	if new.ID != 0 && (old.ID == 0 || old.Leader != new.Leader) {
		t.Set(t.s.key(spaceOwned, new.Leader, new.ID), []byte{})
		t.addLoad(new.Leader, 1)
	}
	if !old.OpenBy.IsZero() && old.OpenBy != new.OpenBy {
		t.Clear(t.s.key(spaceOpen, old.OpenBy.ID, old.OpenBy.Epoch, old.ID))
	}
	if !new.OpenBy.IsZero() && old.OpenBy != new.OpenBy {
		t.Set(t.s.key(spaceOpen, new.OpenBy.ID, new.OpenBy.Epoch, new.ID), []byte{})
	}
}

// Owned lists up to limit streams that node leads (0: streams without a leader), by id, after a given id.
func (s *Store) Owned(ctx context.Context, node, afterStream int64, limit int) (rows []StreamRow, err error) {
	err = s.read(ctx, fmt.Sprintf("read streams of node %d", node), func(tr kv.ReadTransaction) error {
		_, end := s.span(spaceOwned, node)
		rows, err = s.indexed(tr, after(s.key(spaceOwned, node, afterStream)), end, limit, 2)
		return err
	})
	return rows, err
}

// Opened lists up to limit streams that a node epoch has open, by id, after a given id.
func (s *Store) Opened(ctx context.Context, node NodeRef, afterStream int64, limit int) (rows []StreamRow, err error) {
	err = s.read(ctx, "read open streams of "+node.String(), func(tr kv.ReadTransaction) error {
		_, end := s.span(spaceOpen, node.ID, node.Epoch)
		rows, err = s.indexed(tr, after(s.key(spaceOpen, node.ID, node.Epoch, afterStream)), end, limit, 3)
		return err
	})
	return rows, err
}

// indexed reads the streams whose ids are the last of n integers in the keys of an index.
func (s *Store) indexed(tr kv.ReadTransaction, begin, end []byte, limit, n int) ([]StreamRow, error) {
	rows, _, err := s.indexedPage(tr, begin, end, limit, n)
	return rows, err
}

// indexedPage is indexed, and gives where the next page begins.
func (s *Store) indexedPage(tr kv.ReadTransaction, begin, end []byte, limit, n int) (rows []StreamRow, next []byte, err error) {
	index, err := tr.GetRange(begin, end, kv.RangeOptions{Limit: limit}).Get()
	if err != nil || len(index) == 0 {
		return nil, end, err
	}
	reads := make([]streamRead, len(index))
	for i, row := range index {
		ids, err := s.ints(row.Key, n)
		if err != nil {
			return nil, nil, err
		}
		reads[i] = s.readStream(tr, ids[n-1])
	}
	rows, err = waitStreams(reads)
	return rows, after(index[len(index)-1].Key), err
}

// Loads is how many streams each node leads; 0: how many have no leader.
func (s *Store) Loads(ctx context.Context) (loads map[int64]int64, err error) {
	err = s.read(ctx, "read loads", func(tr kv.ReadTransaction) error {
		begin, end := s.span(spaceLoad)
		rows, err := tr.GetRange(begin, end, kv.RangeOptions{}).Get()
		if err != nil {
			return err
		}
		loads = make(map[int64]int64, len(rows))
		for _, row := range rows {
			id, err := s.ints(row.Key, 1)
			if err != nil {
				return err
			}
			if loads[id[0]], err = s.decodeLoad(row.Key, row.Value); err != nil {
				return err
			}
		}
		return nil
	})
	return loads, err
}

// waitStreams waits for rows that an index says exist.
func waitStreams(reads []streamRead) ([]StreamRow, error) {
	rows := make([]StreamRow, len(reads))
	for i, r := range reads {
		row, ok, err := r.get()
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%w: an index names stream %d, which has no row", ErrCorruptRow, r.id)
		}
		rows[i] = row
	}
	return slices.Clip(rows), nil
}
