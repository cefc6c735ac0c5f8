// Package wal is the write-ahead log of one node epoch: Log writes it, Recover ends it and hands what it holds to the layer. The rules are
// those of the WAL protocol, as wal/README.md states them.
package wal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/segment"
)

// Layer is what the log needs of the metadata layer; *layer.Store is one.
type Layer interface {
	WAL(ctx context.Context, node layer.NodeRef) (layer.WALRow, error)
	PutInline(ctx context.Context, node layer.NodeRef, seq int64, segment []byte) error
	VerifyNode(ctx context.Context, node layer.NodeRef) error
	ConfirmFenced(ctx context.Context, node layer.NodeRef) error
	InlineSegments(ctx context.Context, node layer.NodeRef, from int64, limitBytes int) ([]layer.InlineSegment, error)
	Prepare(ctx context.Context, node layer.NodeRef, objects []string, at time.Time) error
	Adopt(ctx context.Context, by layer.NodeRef, a layer.Adoption) error
	SealWAL(ctx context.Context, by, dead layer.NodeRef, at int64) error
	Stream(ctx context.Context, id int64) (layer.StreamRow, error)
	ObjectEntries(ctx context.Context, stream, from int64, limit int) ([]layer.ObjectEntry, error)
	ObjectMeta(ctx context.Context, object string) (layer.ObjectMeta, bool, error)
	DestroyQueue(ctx context.Context, limit int, before time.Time) ([]layer.Doomed, error)
}

var (
	// ErrFenced: this node epoch is fenced, was replaced, or its log is sealed. Final: the process must stop serving. Also a
	// layer.ErrFenced or layer.ErrReplaced (errors.Is) when the layer said so. Whether what was in flight survives is for the recoverer
	// to decide.
	ErrFenced = errors.New("write-ahead log is fenced")
	// ErrStopped: an object that is neither a segment nor a seal of this log stands where one should be. Final, for an operator. See *ForeignError.
	ErrStopped = errors.New("write-ahead log is stopped")
	// ErrClosed: the log was closed before this append was durable. It may yet be found by a recoverer.
	ErrClosed = errors.New("write-ahead log is closed")
)

// FencedError says how the log learned of its fence.
type FencedError struct {
	Node layer.NodeRef
	Seq  int64 // the segment that was refused
	Err  error // layer.ErrFenced, ErrReplaced, ErrWALSealed or ErrNodeNotFound, or what was found in the object store
}

// Error names node, segment and reason.
func (e *FencedError) Error() string {
	return fmt.Sprintf("write-ahead log of node %s is fenced at segment %d: %v", e.Node, e.Seq, e.Err)
}

// Unwrap gives ErrFenced and the reason.
func (e *FencedError) Unwrap() []error { return []error{ErrFenced, e.Err} }

// ForeignError names an object that stands at a segment's key and is not of this log, or is damaged. Nothing was changed.
type ForeignError struct {
	Key string
	Seq int64
	Err error // what is wrong with it; a *segment.CorruptError when it is damaged
}

// Error names the object and what is wrong.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("object %s, which should be segment %d of a write-ahead log: %v", e.Key, e.Seq, e.Err)
}

// Unwrap gives ErrStopped and the reason.
func (e *ForeignError) Unwrap() []error { return []error{ErrStopped, e.Err} }

// Segment is an acknowledged segment that is not yet packed.
type Segment struct {
	Seq    int64
	Key    string // of its object
	Inline bool   // its bytes are in the layer, so that its object, if there is one, is not the segment
	// Stored: an object of this key may exist, also for an inline segment that had been tried as an object first. A pack lists the keys of all stored
	// segments that it covers, for destruction.
	Stored  bool
	Entries []segment.Entry // in the order of appends; not to be changed
	Parts   []segment.Part  // where the object holds them
	Bytes   int64           // size of the object

	header     segment.Header
	batchBytes int64
}

// Encode makes the bytes of the segment once more, and its parts: those of its object, to the byte.
func (s *Segment) Encode() ([]byte, []segment.Part) {
	return segment.Encode(s.header, s.Entries, segment.Options{})
}

// ObjectEntries are the index entries for the parts of an object, in their order.
func ObjectEntries(object string, parts []segment.Part) []layer.ObjectEntry {
	entries := make([]layer.ObjectEntry, len(parts))
	for i, p := range parts {
		entries[i] = layer.ObjectEntry{
			Stream: p.Stream, Base: p.Base, End: p.End, Object: object, Pos: p.Pos, Len: p.Len,
			IndexPos: p.IndexPos, IndexLen: p.IndexLen, MaxTimestamp: p.MaxTimestamp, Records: p.Records,
		}
	}
	return entries
}

// PartOf is the inverse of ObjectEntries for one entry, but for the stream epoch, which the index does not keep: what segment.ParseIndex takes.
func PartOf(e layer.ObjectEntry) segment.Part {
	return segment.Part{
		Stream: e.Stream, Base: e.Base, End: e.End, Pos: e.Pos, Len: e.Len, IndexPos: e.IndexPos, IndexLen: e.IndexLen,
		MaxTimestamp: e.MaxTimestamp, Records: e.Records,
	}
}
