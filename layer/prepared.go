package layer

import "time"

// PreparedRow is ("prepared", key): an object that is about to be written and is not yet referenced. JSON.
//
// Written by Prepare; cleared by the command that takes the object in, or by ExpirePrepared, which queues it for destruction.
type PreparedRow struct {
	Object string    `json:"object"`
	Node   NodeRef   `json:"node"`
	At     time.Time `json:"at"`
}
