package layer

import "github.com/google/uuid"

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
// Written by RegisterNode, CommitPack (FirstLive), and, once the node epoch is fenced or replaced, by Adopt (FirstLive), SealWAL and FinishWAL. It is kept
// for good: it says which incarnation's keys in the object store were the log's.
type WALRow struct {
	Node        NodeRef   `json:"node"`
	Incarnation uuid.UUID `json:"incarnation"` // random per registration, in the object keys
	Mode        FenceMode `json:"mode"`
	FirstLive   int64     `json:"first_live"`          // number of the first segment that is not covered by index entries
	SealedAt    *int64    `json:"sealed_at,omitempty"` // the number at which the log was found to end
	Done        bool      `json:"done,omitempty"`      // streams closed, inline rows cleared
}
