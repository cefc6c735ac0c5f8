package layer

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer/kv"
)

// FenceMode says what fences a writer's object segments; wal-protocol "Modes". Chosen at registration, obeyed by recoverers.
type FenceMode string

const (
	// FenceBoth: conditional put and a read of the node row after it.
	FenceBoth FenceMode = "both"
	// FenceStore: the conditional put alone.
	FenceStore FenceMode = "store"
	// FenceLayer: the read alone; such logs have no seals.
	FenceLayer FenceMode = "layer"
)

// FirstSegment is the number of the first segment of every log.
const FirstSegment = 1

// WALRow is ("wal", node, node_epoch): the write-ahead log of one registration. JSON.
//
// Written by RegisterNode, CommitPack (FirstLive), and, once the node epoch is fenced or replaced, by Adopt (FirstLive), SealWAL and FinishWAL. Cleared by ForgetWAL
// when the log is done and what it left in the object store has been swept, for which the row says in which incarnation's keys to look. README.md
// ("The life of a log's row") tells why that is safe.
type WALRow struct {
	Node        NodeRef   `json:"node"`
	Incarnation uuid.UUID `json:"incarnation"` // random per registration, in the object keys
	Mode        FenceMode `json:"mode"`
	FirstLive   int64     `json:"first_live"`          // number of the first segment that is not covered by index entries
	SealedAt    *int64    `json:"sealed_at,omitempty"` // the number at which the log was found to end
	Done        bool      `json:"done,omitempty"`      // streams closed, inline rows cleared
}

// walRead is a log's row that is being read.
type walRead struct {
	node NodeRef
	row  future[WALRow]
}

func (s *Store) readWAL(tr kv.ReadTransaction, node NodeRef) walRead {
	return walRead{node: node, row: readJSON[WALRow](s, tr, s.key(spaceWAL, node.ID, node.Epoch))}
}

func (t *tx) wal(node NodeRef) walRead { return t.s.readWAL(t, node) }

// get waits for the row. ErrWALNotFound.
func (r walRead) get() (WALRow, error) {
	row, ok, err := r.row.get()
	if err == nil && !ok {
		err = fmt.Errorf("%w: of %s", ErrWALNotFound, r.node)
	}
	return row, err
}

func (t *tx) setWAL(row WALRow) { t.setJSON(t.s.key(spaceWAL, row.Node.ID, row.Node.Epoch), row) }

// WAL reads one row. ErrWALNotFound.
func (s *Store) WAL(ctx context.Context, node NodeRef) (row WALRow, err error) {
	err = s.read(ctx, "read log of "+node.String(), func(tr kv.ReadTransaction) error {
		row, err = s.readWAL(tr, node).get()
		return err
	})
	return row, err
}

// deadWAL reads the log of a dead node epoch for a recoverer, which must be alive.
func (t *tx) deadWAL(by, dead NodeRef) (WALRow, error) {
	self, other, log := t.node(by), t.node(dead), t.wal(dead)
	if err := self.alive(); err != nil {
		return WALRow{}, err
	}
	if err := other.gone(); err != nil {
		return WALRow{}, err
	}
	return log.get()
}

// SealWAL records that a dead node's log ends before segment at, conditional on at being its first live one (ErrWALMoved). The node epoch must be fenced or
// replaced (ErrNotFenced). A log that was sealed there before stays so; elsewhere: ErrWALSealed.
func (s *Store) SealWAL(ctx context.Context, by, dead NodeRef, at int64) error {
	return s.transact(ctx, "seal log of "+dead.String(), by, func(t *tx) error {
		row, err := t.deadWAL(by, dead)
		if err != nil {
			return err
		}
		if row.SealedAt != nil {
			if *row.SealedAt != at {
				return fmt.Errorf("%w: of %s at %d", ErrWALSealed, dead, *row.SealedAt)
			}
			return nil
		}
		if row.FirstLive != at {
			return fmt.Errorf("%w: of %s: wanted %d, found %d", ErrWALMoved, dead, at, row.FirstLive)
		}
		row.SealedAt = &at
		t.setWAL(row)
		return nil
	})
}

// FinishWAL clears what is left of a dead node's inline rows, for good since no later commit of it can succeed, and marks the log done. It must be sealed
// (ErrWALNotSealed) and its streams closed (ErrStreamOpen).
func (s *Store) FinishWAL(ctx context.Context, by, dead NodeRef) error {
	return s.transact(ctx, "finish log of "+dead.String(), by, func(t *tx) error {
		begin, end := s.span(spaceOpen, dead.ID, dead.Epoch)
		open := t.GetRange(begin, end, kv.RangeOptions{Limit: 1})
		row, err := t.deadWAL(by, dead)
		if err != nil {
			return err
		}
		if row.SealedAt == nil {
			return fmt.Errorf("%w: of %s", ErrWALNotSealed, dead)
		}
		left, err := open.Get()
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%w: %s", ErrStreamOpen, s.describe(left[0].Key))
		}
		if row.Done {
			return nil
		}
		row.Done = true
		t.setWAL(row)
		t.ClearRange(s.span(spaceInline, dead.ID, dead.Epoch))
		return nil
	})
}
