package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
)

// Record is one record of a batch. A nil key or value is Kafka's null, an empty one is not.
type Record struct {
	Offset    int64
	Timestamp int64 // ms
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
}

// RecordHeader is one header of a record. Keys may repeat; a nil value is null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// minRecordSize is the size of the smallest record: seven fields of at least one byte each.
const minRecordSize = 7

// Records decodes the records, decompressed to at most maxBytes. Keys and values alias Raw when it is not compressed.
//
// Errors: ErrTooLarge, ErrCorrupt, ErrInvalid (codec).
func (b Batch) Records(maxBytes int) ([]Record, error) {
	payload, err := b.payload(nil, maxBytes)
	if err != nil {
		return nil, err
	}
	if err := b.checkCount(payload); err != nil {
		return nil, err
	}
	records := make([]Record, 0, b.Header.Records)
	err = b.walk(payload, func(r *rawRecord) error {
		records = append(records, r.decode(b.Header))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// All iterates over the records; it ends after the first error. See Records.
func (b Batch) All(maxBytes int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		payload, err := b.payload(nil, maxBytes)
		if err == nil {
			err = b.checkCount(payload)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		err = b.walk(payload, func(r *rawRecord) error {
			if !yield(r.decode(b.Header), nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(Record{}, err)
		}
	}
}

// Summary is what CheckRecords learns of the records of a batch.
type Summary struct {
	MaxTimestamp  int64 // ms, of the records themselves
	MaxDelta      int32 // offset delta of the first record that has it
	NullKeys      int   // records without a key
	Decompressed  int   // bytes of the records, decompressed
	FirstNullKeys int32 // offset delta of the first record without a key; -1 none
}

// scratch holds buffers that decompressed records are checked in; larger ones are not kept.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

const scratchKeep = 4 << 20

// CheckRecords reads every record of a producer's batch without keeping any of it: they decompress to at most maxBytes, are as many
// as the header says, have consecutive offset deltas from 0 and fill their bytes exactly. A batch that passes can be read by every
// consumer.
//
// Errors: ErrTooLarge, ErrCorrupt, ErrInvalid.
func (b Batch) CheckRecords(maxBytes int) (Summary, error) {
	payload := b.Raw[HeaderSize:]
	if b.Codec() != None {
		buffer := scratch.Get().(*[]byte)
		defer func() {
			if cap(*buffer) <= scratchKeep {
				scratch.Put(buffer)
			}
		}()
		var err error
		if payload, err = b.payload((*buffer)[:0], maxBytes); err != nil {
			return Summary{}, err
		}
		*buffer = payload
	}
	if err := b.checkCount(payload); err != nil {
		return Summary{}, err
	}
	s := Summary{MaxTimestamp: math.MinInt64, Decompressed: len(payload), FirstNullKeys: -1}
	var next int32
	err := b.walk(payload, func(r *rawRecord) error {
		if r.offsetDelta != int64(next) {
			return fmt.Errorf("%w: record %d has offset delta %d", ErrInvalid, next, r.offsetDelta)
		}
		if ts := b.FirstTimestamp + r.timestampDelta; ts > s.MaxTimestamp {
			s.MaxTimestamp, s.MaxDelta = ts, next
		}
		if r.key == nil {
			if s.NullKeys == 0 {
				s.FirstNullKeys = next
			}
			s.NullKeys++
		}
		next++
		return nil
	})
	return s, err
}

// payload is the records' bytes, appended to buffer when they had to be decompressed.
func (b Batch) payload(buffer []byte, maxBytes int) ([]byte, error) {
	stored := b.Raw[HeaderSize:]
	if b.Codec() != None {
		return decompress(buffer, b.Codec(), stored, maxBytes)
	}
	if len(stored) > maxBytes {
		return nil, fmt.Errorf("%w of %d bytes", ErrTooLarge, maxBytes)
	}
	return stored, nil
}

// checkCount refuses a count that the payload cannot hold, before anything is allocated by it.
func (b Batch) checkCount(payload []byte) error {
	if b.Header.Records < 0 || int64(b.Header.Records)*minRecordSize > int64(len(payload)) {
		return fmt.Errorf("%w: %d records in %d bytes", ErrCorrupt, b.Header.Records, len(payload))
	}
	return nil
}

// errStop ends a walk early; it never leaves the package.
var errStop = errors.New("stop")

// rawRecord is a record whose fields alias the payload and whose headers are not yet decoded, but are known to be well-formed.
type rawRecord struct {
	timestampDelta int64
	offsetDelta    int64
	key, value     []byte
	headers        []byte
	headerCount    int64
}

func (r *rawRecord) decode(h Header) Record {
	out := Record{
		Offset:    h.BaseOffset + r.offsetDelta,
		Timestamp: h.FirstTimestamp + r.timestampDelta,
		Key:       r.key,
		Value:     r.value,
	}
	if h.IsLogAppendTime() {
		out.Timestamp = h.MaxTimestamp
	}
	if r.headerCount > 0 {
		out.Headers = make([]RecordHeader, 0, r.headerCount)
		c := cursor{b: r.headers}
		for range r.headerCount {
			key, value := c.bytes(), c.bytes()
			out.Headers = append(out.Headers, RecordHeader{Key: string(key), Value: value})
		}
	}
	return out
}

// walk calls each with every record, in order. The record is valid during the call only; its key and value stay valid.
func (b Batch) walk(payload []byte, each func(*rawRecord) error) error {
	c := cursor{b: payload}
	var r rawRecord
	for i := range b.Header.Records {
		size := c.varint()
		if c.bad || size < minRecordSize-1 || size > int64(len(c.b)) {
			return fmt.Errorf("%w: record %d has a length of %d in %d bytes", ErrCorrupt, i, size, len(c.b))
		}
		body := cursor{b: c.b[:size:size]}
		c.b = c.b[size:]
		if !r.parse(&body) {
			return fmt.Errorf("%w: record %d is malformed", ErrCorrupt, i)
		}
		if r.offsetDelta < 0 || r.offsetDelta > int64(b.LastOffsetDelta) {
			return fmt.Errorf("%w: record %d has offset delta %d of %d", ErrCorrupt, i, r.offsetDelta, b.LastOffsetDelta)
		}
		if err := each(&r); err != nil {
			return err
		}
	}
	if len(c.b) > 0 {
		return fmt.Errorf("%w: %d bytes after the last record", ErrCorrupt, len(c.b))
	}
	return nil
}

// parse reads a record's body: attributes, timestamp delta, offset delta, key, value, headers. It must fill its bytes exactly.
func (r *rawRecord) parse(c *cursor) bool {
	c.skip(1) // attributes, unused by the format
	r.timestampDelta = c.varint()
	r.offsetDelta = c.varint()
	r.key = c.bytes()
	r.value = c.bytes()
	r.headerCount = c.varint()
	if c.bad || r.headerCount < 0 || r.headerCount > int64(len(c.b))/2 {
		return false
	}
	r.headers = c.b
	for range r.headerCount {
		if key := c.bytes(); key == nil { // a header's key is never null
			return false
		}
		c.bytes()
		if c.bad {
			return false
		}
	}
	return len(c.b) == 0
}

// cursor reads fields off b; the first that does not fit sets bad and everything after reads as zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) fail() {
	c.bad, c.b = true, nil
}

func (c *cursor) skip(n int) {
	if len(c.b) < n {
		c.fail()
		return
	}
	c.b = c.b[n:]
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

// bytes reads a length and as many bytes: nil for a length of -1, and not nil for 0.
func (c *cursor) bytes() []byte {
	n := c.varint()
	if c.bad || n == -1 {
		return nil
	}
	if n < 0 || n > int64(len(c.b)) {
		c.fail()
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}
