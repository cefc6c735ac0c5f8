package layer

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer/kv"
)

// NodeRow is ("node", id): who a node id is now. JSON.
//
// Written by RegisterNode (a new epoch), FenceNode, FenceSelf, SetSlots and ResetSlots. It never dies: the next registration must get a higher epoch.
// Every command of a node reads it, which is what fences: it is written rarely, so that those commands do not conflict.
type NodeRow struct {
	ID           int64     `json:"id"`
	Epoch        int64     `json:"epoch"`
	Fenced       bool      `json:"fenced,omitempty"`
	Kafka        string    `json:"kafka,omitempty"` // advertised host:port, "" = no such listener
	HTTP         string    `json:"http,omitempty"`
	Admin        string    `json:"admin,omitempty"`
	Slots        int       `json:"slots"`               // relative weight in placement, 0 = none
	OwnSlots     *int      `json:"own_slots,omitempty"` // what the node registered with, while Slots are an operator's (SetSlots); else nil
	RegisteredAt time.Time `json:"registered_at"`
	Version      string    `json:"version,omitempty"` // of the binary
	Rack         string    `json:"rack,omitempty"`
	RequestID    uuid.UUID `json:"request_id"` // of the registration: a repeated one gets the same epoch
}

// Ref is the node epoch that the row is about.
func (r NodeRow) Ref() NodeRef { return NodeRef{ID: r.ID, Epoch: r.Epoch} }

// alive is nil when ref may act, given its node row.
func (r NodeRow) alive(ref NodeRef, ok bool) error {
	switch {
	case !ok || r.Epoch < ref.Epoch:
		return fmt.Errorf("%w: %s (row: epoch %d)", ErrNodeNotFound, ref, r.Epoch)
	case r.Epoch > ref.Epoch:
		return fmt.Errorf("%w: %s is now at epoch %d", ErrReplaced, ref, r.Epoch)
	case r.Fenced:
		return fmt.Errorf("%w: %s", ErrFenced, ref)
	}
	return nil
}

// gone is nil when ref can never act again, given its node row.
func (r NodeRow) gone(ref NodeRef, ok bool) error {
	switch {
	case !ok || r.Epoch < ref.Epoch:
		return fmt.Errorf("%w: %s (row: epoch %d)", ErrNodeNotFound, ref, r.Epoch)
	case r.Epoch == ref.Epoch && !r.Fenced:
		return fmt.Errorf("%w: %s", ErrNotFenced, ref)
	}
	return nil
}

// nodeRead is a node row that is being read to check a node epoch.
type nodeRead struct {
	ref NodeRef
	future[NodeRow]
}

func (s *Store) readNode(tr kv.ReadTransaction, ref NodeRef) nodeRead {
	return nodeRead{ref: ref, future: readJSON[NodeRow](s, tr, s.key(spaceNode, ref.ID))}
}

func (t *tx) node(ref NodeRef) nodeRead { return t.s.readNode(t, ref) }

// alive waits, and is nil when the node epoch is the latest one and not fenced.
func (r nodeRead) alive() error {
	row, ok, err := r.get()
	if err != nil {
		return err
	}
	return row.alive(r.ref, ok)
}

// gone waits, and is nil when the node epoch is fenced or replaced.
func (r nodeRead) gone() error {
	row, ok, err := r.get()
	if err != nil {
		return err
	}
	return row.gone(r.ref, ok)
}

func (t *tx) setNode(row NodeRow) {
	t.setJSON(t.s.key(spaceNode, row.ID), row)
	t.changed(spaceNode, row.ID, "", row)
}

// Node reads one row. ErrNodeNotFound.
func (s *Store) Node(ctx context.Context, id int64) (row NodeRow, err error) {
	err = s.read(ctx, fmt.Sprintf("read node %d", id), func(tr kv.ReadTransaction) error {
		var ok bool
		row, ok, err = readJSON[NodeRow](s, tr, s.key(spaceNode, id)).get()
		if err == nil && !ok {
			err = ErrNodeNotFound
		}
		return err
	})
	return row, err
}

// Nodes reads all rows, by id.
func (s *Store) Nodes(ctx context.Context) (rows []NodeRow, err error) {
	err = s.read(ctx, "read nodes", func(tr kv.ReadTransaction) error {
		begin, end := s.span(spaceNode)
		rows, err = rangeJSON[NodeRow](s, tr.GetRange(begin, end, kv.RangeOptions{}))
		return err
	})
	return rows, err
}

// VerifyNode reads the node row at a fresh read version: nil when the node epoch may act, ErrFenced or ErrReplaced when it never will again.
func (s *Store) VerifyNode(ctx context.Context, node NodeRef) error {
	if broken("fence") {
		return nil
	}
	return s.read(ctx, "verify node", func(tr kv.ReadTransaction) error { return s.readNode(tr, node).alive() })
}

// ConfirmFenced is nil when the node epoch is fenced or replaced, so that no command of it can be committed any more; ErrNotFenced otherwise.
func (s *Store) ConfirmFenced(ctx context.Context, node NodeRef) error {
	return s.read(ctx, "confirm fence", func(tr kv.ReadTransaction) error { return s.readNode(tr, node).gone() })
}
