// Package segment is the one byte format of everything that Varve keeps in the object store: segments of the write-ahead log, data
// objects, and the seals that end a log. The layout, with offsets, is in wal/README.md.
//
// An object is a head, the blocks of each stream, one block index for each stream, a directory and a footer. Readers begin at the end:
// one ranged read of the tail gives the directory and every index. Every byte is covered by a checksum or is a constant that is checked.
// Equal arguments give equal bytes, so a write can be tried again.
package segment

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Kind says what an object is.
type Kind uint8

// The kinds of objects. Their numbers are part of the format.
const (
	// KindSegment is one write of the write-ahead log. Its indexes list every batch with its producer, for recovery.
	KindSegment Kind = 1
	// KindData is a data object: blocks only.
	KindData Kind = 2
	// KindSeal ends the log of a node epoch at its number. It has no parts.
	KindSeal Kind = 3
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case KindSegment:
		return "segment"
	case KindData:
		return "data"
	case KindSeal:
		return "seal"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Header says which object this is. It is compared whole: a segment whose header differs from the one expected is foreign.
type Header struct {
	Kind        Kind
	Cluster     string // at most MaxCluster bytes
	Node        int64  // id of the node whose log this is, or that made the data object
	NodeEpoch   int64
	Seq         int64     // number in the log of the node epoch; 0 in data objects
	Incarnation uuid.UUID // of the node epoch's log; in data objects, whatever the maker likes
}

// String is the header for messages.
func (h Header) String() string {
	return fmt.Sprintf("%s %s/%d@%d/%s/%d", h.Kind, h.Cluster, h.Node, h.NodeEpoch, h.Incarnation, h.Seq)
}

// NoProducer is the Producer.ID of a batch without a producer.
const NoProducer = -1

// Producer is what a batch says about its idempotent producer. Kafka's ids are not negative, those of HTTP producers are at most -2.
type Producer struct {
	ID, Epoch         int64
	FirstSeq, LastSeq int64
}

// Entry is one batch of one stream.
type Entry struct {
	Stream       int64
	Epoch        int64 // stream epoch under which it was appended
	Base, Last   int64 // offsets of the first and last record
	MaxTimestamp int64 // milliseconds
	Producer     Producer
	Data         []byte // one Kafka record batch v2 with its offset set; not empty
}

// Part is what one object holds of one stream at one stream epoch: consecutive offsets. A stream may have several parts in an object,
// in the order in which its entries were given.
type Part struct {
	Stream, Epoch      int64
	Base, End          int64 // offsets [Base, End)
	Pos, Len           int64 // where its blocks lie in the object, bytes
	IndexPos, IndexLen int64 // where its block index lies, bytes
	MaxTimestamp       int64 // milliseconds, the largest of its batches
	Records            int64
}

// Block is a run of whole batches that has one checksum, the unit of reading and caching.
type Block struct {
	Base, End    int64 // offsets [Base, End)
	Pos, Len     int64 // in the object, bytes
	CRC          uint32
	MaxTimestamp int64 // milliseconds, the largest of its batches
	Batches      int
}

// Batch is one batch as the index of a segment lists it. Data objects list none.
type Batch struct {
	Base, Last   int64
	Pos, Len     int64 // in the object, bytes
	MaxTimestamp int64
	Producer     Producer
}

// Index is the block index of one part.
type Index struct {
	Stream, Base int64
	Blocks       []Block
	Batches      []Batch // segments only
}

// Limits of the format. Whatever claims more is corrupt.
const (
	// MaxCluster is the longest cluster name, bytes.
	MaxCluster = 255
	// MaxObject is the largest object, bytes.
	MaxObject = 1 << 40
	// MaxTail is the longest tail (indexes, directory and footer), bytes.
	MaxTail = 1 << 30
	// DefaultBlockSize is the target size of a block, bytes.
	DefaultBlockSize = 1 << 20
	// TailRead is how much of the end of an object a reader asks for first, bytes. It holds the whole tail of most objects.
	TailRead = 64 << 10
)

// ErrCorrupt is what every CorruptError is (errors.Is).
var ErrCorrupt = errors.New("corrupt object")

// CorruptError names bytes that are not what was written.
type CorruptError struct {
	Object string // key, "" when the parser was not told
	Offset int64  // where in the object, bytes; -1 when unknown
	Reason string
}

// Error names the object, the place and the reason.
func (e *CorruptError) Error() string {
	object := e.Object
	if object == "" {
		object = "object"
	}
	return fmt.Sprintf("%s is corrupt at byte %d: %s", object, e.Offset, e.Reason)
}

// Is makes every CorruptError an ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Named puts the object's key into a CorruptError that lacks it, and returns other errors as they are.
func Named(err error, object string) error {
	var corrupt *CorruptError
	if errors.As(err, &corrupt) && corrupt.Object == "" {
		named := *corrupt
		named.Object = object
		return &named
	}
	return err
}

func corruptf(offset int64, format string, args ...any) error {
	return &CorruptError{Offset: offset, Reason: fmt.Sprintf(format, args...)}
}
