package layer

import (
	"time"

	"github.com/google/uuid"
)

// TableKind says what a table's buckets are.
type TableKind string

// LogTable is append-only. No other kind exists yet.
const LogTable TableKind = "log"

// TableState is where a table is in its life.
type TableState string

const (
	// TableActive tables serve.
	TableActive TableState = "active"
	// TableDeleting tables have no name any more; DestroyStreams removes their streams and then the row.
	TableDeleting TableState = "deleting"
)

// Bounds of a table.
const (
	MaxTableName   = 1024   // bytes
	MaxBuckets     = 100000 // per table
	MaxOptions     = 100    // per table
	MaxOptionBytes = 4096   // key and value together
)

// TableRow is ("table", id). JSON.
//
// Written by CreateTable, AddBuckets, AlterTable and DeleteTable; cleared by DestroyStreams after the table's last stream.
type TableRow struct {
	ID        int64             `json:"id"`
	Name      string            `json:"name"`
	UUID      uuid.UUID         `json:"uuid"` // Kafka's topic id
	Kind      TableKind         `json:"kind"`
	Buckets   int               `json:"buckets"` // streams that exist: buckets 0 to Buckets-1
	Target    int               `json:"target"`  // streams that are wanted; the lease holder finishes what a crash left
	Options   map[string]string `json:"options,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	RequestID uuid.UUID         `json:"request_id"` // of the creation
	State     TableState        `json:"state"`
	Recent    []uuid.UUID       `json:"recent,omitempty"` // request ids of the last changes, so that a repeated one changes nothing
}
