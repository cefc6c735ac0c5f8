package layer

import (
	"encoding/json"

	"github.com/varvedb/varve/layer/kv/tuple"
)

// LogRecord is ("log", versionstamp): one change of metadata, or a part of a large one. JSON.
type LogRecord struct {
	Versionstamp tuple.Versionstamp `json:"-"`
	Command      string             `json:"command"`
	By           string             `json:"by,omitempty"` // node or lease that proposed it
	Changes      []Change           `json:"changes"`
}

// Change is the new value of one row.
type Change struct {
	Keyspace string          `json:"keyspace"` // node, lease, table, stream, transfer
	ID       int64           `json:"id,omitempty"`
	Name     string          `json:"name,omitempty"` // of a lease
	Row      json.RawMessage `json:"row,omitempty"`  // absent: the row was cleared
}
