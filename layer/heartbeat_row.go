package layer

import (
	"context"

	"github.com/varvedb/varve/layer/kv"
)

// HeartbeatRow is ("heartbeat", id): how often a node epoch has heartbeated. JSON. Written by RegisterNode (count 0) and Heartbeat, and by nobody
// else; it lives apart from the node row so that heartbeats conflict with nothing. It never dies.
type HeartbeatRow struct {
	Epoch int64 `json:"epoch"`
	Count int64 `json:"count"`
}

func (t *tx) heartbeat(id int64) future[HeartbeatRow] {
	return readJSON[HeartbeatRow](t.s, t, t.s.key(spaceHeartbeat, id))
}

// Heartbeat adds one to the node's count, exactly one however often the commit had to be repeated: the count is the lease holder's clock.
// A node heartbeats from one place, one at a time.
func (s *Store) Heartbeat(ctx context.Context, node NodeRef) (row HeartbeatRow, err error) {
	want := int64(-1) // what the first run of the decision set out to write
	err = s.transact(ctx, "heartbeat", node, func(t *tx) error {
		self, beat := t.node(node), t.heartbeat(node.ID)
		if err := self.alive(); err != nil {
			return err
		}
		if row, _, err = beat.get(); err != nil {
			return err
		}
		if want < 0 {
			want = row.Count + 1
		}
		if row.Count < want {
			row = HeartbeatRow{Epoch: node.Epoch, Count: want}
			t.setJSON(s.key(spaceHeartbeat, node.ID), row)
		}
		return nil
	})
	return row, err
}

// Heartbeats reads all rows, by node id.
func (s *Store) Heartbeats(ctx context.Context) (rows map[int64]HeartbeatRow, err error) {
	err = s.read(ctx, "read heartbeats", func(tr kv.ReadTransaction) error {
		begin, end := s.span(spaceHeartbeat)
		found, err := tr.GetRange(begin, end, kv.RangeOptions{}).Get()
		if err != nil {
			return err
		}
		rows = make(map[int64]HeartbeatRow, len(found))
		for _, row := range found {
			id, err := s.ints(row.Key, 1)
			if err != nil {
				return err
			}
			if rows[id[0]], err = decodeJSON[HeartbeatRow](s, row.Key, row.Value); err != nil {
				return err
			}
		}
		return nil
	})
	return rows, err
}
