package layer

import (
	"time"

	"github.com/varvedb/varve/layer/kv/tuple"
)

// Doomed is ("destroy", versionstamp): an object that nothing refers to any more. JSON.
//
// Written by whatever dropped the last reference, in the same transaction; cleared by Destroyed, after the bytes are gone.
type Doomed struct {
	Versionstamp tuple.Versionstamp `json:"-"`
	Object       string             `json:"object"`
	At           time.Time          `json:"at"`
	Reason       string             `json:"reason"`
}
