package layer

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// NodeInfo is what a process tells of itself when it registers.
type NodeInfo struct {
	ID                 int64 // chosen by the operator, at least 1
	Kafka, HTTP, Admin string
	Slots              int // relative weight in placement; 0: it gets no streams
	Version, Rack      string
}

// maxNodeText bounds each text that a process tells of itself, bytes.
const maxNodeText = 300

func (i NodeInfo) validate() error {
	if i.ID < 1 || i.Slots < 0 {
		return invalid("node id %d with %d slots: an id is at least 1, slots are at least 0", i.ID, i.Slots)
	}
	for _, text := range []string{i.Kafka, i.HTTP, i.Admin, i.Version, i.Rack} {
		if len(text) > maxNodeText {
			return invalid("node %d: %.40q... has %d bytes, at most %d fit", i.ID, text, len(text), maxNodeText)
		}
	}
	return nil
}

// RegisterNode gives a process the next epoch of its node id, alive, with a heartbeat count of zero and an empty log in the given mode. Older epochs are
// replaced by that; what an operator set (SetSlots) stays. It is conditional on nothing but the format row. A repeated request gets the rows of the first,
// fenced or not.
func (s *Store) RegisterNode(ctx context.Context, info NodeInfo, mode FenceMode, requestID, incarnation uuid.UUID, at time.Time) (node NodeRow, wal WALRow, err error) {
	if err := info.validate(); err != nil {
		return node, wal, err
	}
	if mode != FenceBoth && mode != FenceStore && mode != FenceLayer {
		return node, wal, invalid("fence mode %q", mode)
	}
	err = s.transact(ctx, "register node", name(fmt.Sprintf("node %d", info.ID)), func(t *tx) error {
		format, old := readJSON[FormatRow](s, t, s.key(spaceFormat)), t.node(NodeRef{ID: info.ID})
		if row, _, err := format.get(); err != nil {
			return err
		} else if err := s.checkFormat(row); err != nil {
			return err
		}
		before, ok, err := old.get()
		if err != nil {
			return err
		}
		if ok && before.RequestID == requestID {
			node = before
			wal, err = t.wal(node.Ref()).get()
			return err
		}
		node = NodeRow{
			ID: info.ID, Epoch: before.Epoch + 1, Kafka: info.Kafka, HTTP: info.HTTP, Admin: info.Admin, Slots: info.Slots,
			RegisteredAt: stamp(at), Version: info.Version, Rack: info.Rack, RequestID: requestID,
		}
		if before.OwnSlots != nil {
			node.Slots, node.OwnSlots = before.Slots, &info.Slots
		}
		wal = WALRow{Node: node.Ref(), Incarnation: incarnation, Mode: mode, FirstLive: FirstSegment}
		t.setNode(node)
		t.setJSON(s.key(spaceHeartbeat, node.ID), HeartbeatRow{Epoch: node.Epoch})
		t.setWAL(wal)
		return nil
	})
	return node, wal, err
}

// SetSlots puts an operator's weight in the place of the one that the node registered with, also for later registrations, until ResetSlots. ErrNodeNotFound.
func (s *Store) SetSlots(ctx context.Context, id int64, slots int) error {
	if slots < 0 {
		return invalid("node %d: %d slots, at least 0", id, slots)
	}
	return s.changeNode(ctx, "set slots", id, func(row NodeRow) (NodeRow, bool) {
		if row.OwnSlots == nil {
			own := row.Slots
			row.OwnSlots = &own
		} else if row.Slots == slots {
			return row, false
		}
		row.Slots = slots
		return row, true
	})
}

// ResetSlots gives a node the weight that it registered with, after SetSlots. ErrNodeNotFound.
func (s *Store) ResetSlots(ctx context.Context, id int64) error {
	return s.changeNode(ctx, "reset slots", id, func(row NodeRow) (NodeRow, bool) {
		if row.OwnSlots == nil {
			return row, false
		}
		row.Slots, row.OwnSlots = *row.OwnSlots, nil
		return row, true
	})
}

// changeNode is an operator's change of a node row: change tells the new row, and whether it differs.
func (s *Store) changeNode(ctx context.Context, command string, id int64, change func(NodeRow) (NodeRow, bool)) error {
	return s.transact(ctx, command, name("operator"), func(t *tx) error {
		row, ok, err := t.node(NodeRef{ID: id}).get()
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: %d", ErrNodeNotFound, id)
		}
		if row, changed := change(row); changed {
			t.setNode(row)
		}
		return nil
	})
}
