package layer

import (
	"context"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// ObjectKind says how an object came to hold records.
type ObjectKind string

const (
	// DataObject was written for reading: prepared first, then referenced by a pack, a merge or an adoption.
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
	// Held: the object is also a live segment of a write-ahead log, so its bytes must stay even without references. Ends when the first live
	// number passes the segment.
	Held bool `json:"held,omitempty"`
}

func (m ObjectMeta) validate() error {
	if m.Object == "" || len(m.Object) > MaxObjectKey || m.Size < 0 {
		return invalid("object %.100q of %d bytes with a key of %d bytes, 1 to %d fit", m.Object, m.Size, len(m.Object), MaxObjectKey)
	}
	if m.Kind != DataObject && m.Kind != AdoptedSegment {
		return invalid("object %q: kind %q", m.Object, m.Kind)
	}
	return nil
}

func (s *Store) readMeta(tr kv.ReadTransaction, object string) future[ObjectMeta] {
	return readJSON[ObjectMeta](s, tr, s.key(spaceMeta, object))
}

// ObjectMeta reads one row; false when nothing refers to the object.
func (s *Store) ObjectMeta(ctx context.Context, object string) (row ObjectMeta, ok bool, err error) {
	err = s.read(ctx, fmt.Sprintf("read object %q", object), func(tr kv.ReadTransaction) error {
		row, ok, err = s.readMeta(tr, object).get()
		return err
	})
	return row, ok, err
}
