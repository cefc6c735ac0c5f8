package layer

import (
	"time"

	"github.com/google/uuid"
)

// NodeRow is ("node", id): who a node id is now. JSON.
//
// Written by RegisterNode (a new epoch), FenceNode, FenceSelf and SetSlots. It never dies: the next registration must get a higher epoch.
// Every command of a node reads it, which is what fences: it is written rarely, so that those commands do not conflict.
type NodeRow struct {
	ID           int64     `json:"id"`
	Epoch        int64     `json:"epoch"`
	Fenced       bool      `json:"fenced,omitempty"`
	Kafka        string    `json:"kafka,omitempty"` // advertised host:port, "" = no such listener
	HTTP         string    `json:"http,omitempty"`
	Admin        string    `json:"admin,omitempty"`
	Slots        int       `json:"slots"` // relative weight in placement
	RegisteredAt time.Time `json:"registered_at"`
	Version      string    `json:"version,omitempty"` // of the binary
	Rack         string    `json:"rack,omitempty"`
	RequestID    uuid.UUID `json:"request_id"` // of the registration: a repeated one gets the same epoch
}

// Ref is the node epoch that the row is about.
func (r NodeRow) Ref() NodeRef { return NodeRef{ID: r.ID, Epoch: r.Epoch} }
