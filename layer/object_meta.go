package layer

import "time"

// ObjectKind says how an object came to hold records.
type ObjectKind string

const (
	// DataObject was written for reading: prepared first, referenced by a pack, a merge or an adoption.
	DataObject ObjectKind = "data"
	// AdoptedSegment is a segment object of a write-ahead log that index entries point into. It is never prepared.
	AdoptedSegment ObjectKind = "adopted"
)

// ObjectMeta is ("object_meta", key): an object that index entries point into. JSON.
//
// Written by CommitPack, Adopt and MergeEntries; Refs falls by TrimStream, MergeEntries and DestroyStreams, and the row dies with the last
// reference, which queues the object for destruction in the same transaction.
type ObjectMeta struct {
	Object    string     `json:"object"`
	Size      int64      `json:"size"` // bytes
	Refs      int64      `json:"refs"` // index entries that point into it
	CreatedAt time.Time  `json:"created_at"`
	Kind      ObjectKind `json:"kind"`
	// Held: the object is also a live segment of a write-ahead log, or an adoption of it has begun, so it must stay even without
	// references. Ends when the first live number passes the segment.
	Held bool `json:"held,omitempty"`
}
