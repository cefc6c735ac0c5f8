// Package batch reads, checks, changes in place and builds Kafka record batches of format v2.
//
// A batch travels through Varve as the bytes that the producer sent: only the base offset and the leader epoch, which lie outside
// the checksum, are written anew. The layout (big endian), after Kafka's "Record Batch" documentation and KIP-98:
//
//	 0 base offset            int64     first offset; assigned by the leader
//	 8 length                 int32     bytes that follow this field
//	12 partition leader epoch int32
//	16 magic                  int8      2
//	17 crc                    uint32    CRC32C of everything from byte 21 on
//	21 attributes             int16     bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control
//	23 last offset delta      int32
//	27 first timestamp        int64     ms
//	35 max timestamp          int64     ms
//	43 producer id            int64     -1 none
//	51 producer epoch         int16
//	53 base sequence          int32
//	57 records                int32     how many
//	61 records, possibly compressed as a whole
package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// HeaderSize is the size in bytes of a batch's header; a batch without records has exactly this size.
const HeaderSize = 61

// Magic is the only record format that is stored.
const Magic = 2

// NoProducer is the producer id, epoch and base sequence of a batch that is not idempotent.
const NoProducer = -1

const (
	posLength        = 8
	posLeaderEpoch   = 12
	posMagic         = 16
	posCRC           = 17
	posAttributes    = 21
	posLastDelta     = 23
	posFirstTime     = 27
	posMaxTime       = 35
	posProducerID    = 43
	posProducerEpoch = 51
	posBaseSequence  = 53
	posRecords       = 57

	lengthOverhead = posLength + 4 // what the length field does not count
)

const (
	attrCodec         = 0b000111
	attrLogAppendTime = 0b001000
	attrTransactional = 0b010000
	attrControl       = 0b100000

	attrDeleteHorizon = 0b1000000 // KIP-534, set by compaction only
)

var (
	// ErrCorrupt says that the bytes are not what the writer of the batch had: a length, a count or the checksum does not fit.
	ErrCorrupt = errors.New("corrupt record batch")
	// ErrTruncated says that the bytes end before the batch does. It is also an ErrCorrupt.
	ErrTruncated = fmt.Errorf("%w: truncated", ErrCorrupt)
	// ErrMagic says that the batch is of another format than v2 (the old message sets, magic 0 and 1).
	ErrMagic = errors.New("record format is not v2")
	// ErrInvalid says that the batch is intact but says what a producer may not say.
	ErrInvalid = errors.New("invalid record batch")
	// ErrTimestamp says that a producer claims the log append time, which only the leader sets. It is also an ErrInvalid.
	ErrTimestamp = fmt.Errorf("%w: timestamp", ErrInvalid)
	// ErrTooLarge says that the records are larger, once decompressed, than the caller's bound.
	ErrTooLarge = errors.New("decompressed records exceed the bound")
)

// Header is a batch's header, decoded.
type Header struct {
	BaseOffset           int64
	Length               int32 // bytes after the length field
	PartitionLeaderEpoch int32
	Magic                int8
	CRC                  uint32
	Attributes           int16
	LastOffsetDelta      int32
	FirstTimestamp       int64 // ms
	MaxTimestamp         int64 // ms
	ProducerID           int64
	ProducerEpoch        int16
	BaseSequence         int32
	Records              int32
}

// Batch is one batch. Raw is the whole of it, header included, and aliases the bytes it was found in.
type Batch struct {
	Header
	Raw []byte
}

// Next takes the first batch off b. The batch's length lies within b and its magic is 2; nothing else is checked.
//
// Errors: ErrTruncated, ErrCorrupt (a length that no batch can have), ErrMagic.
func Next(b []byte) (first Batch, rest []byte, err error) {
	if len(b) <= posMagic {
		return Batch{}, nil, fmt.Errorf("%w: %d bytes are less than any batch has", ErrTruncated, len(b))
	}
	if magic := int8(b[posMagic]); magic != Magic {
		return Batch{}, nil, fmt.Errorf("%w: magic %d", ErrMagic, magic)
	}
	length := int32(binary.BigEndian.Uint32(b[posLength:]))
	if length < HeaderSize-lengthOverhead || length > math.MaxInt32-lengthOverhead {
		return Batch{}, nil, fmt.Errorf("%w: length %d", ErrCorrupt, length)
	}
	size := int(length) + lengthOverhead
	if size > len(b) {
		return Batch{}, nil, fmt.Errorf("%w: batch of %d bytes in %d bytes", ErrTruncated, size, len(b))
	}
	raw := b[:size:size]
	return Batch{Header: parseHeader(raw), Raw: raw}, b[size:], nil
}

// parseHeader decodes a header of which all bytes are there.
func parseHeader(b []byte) Header {
	be := binary.BigEndian
	return Header{
		BaseOffset:           int64(be.Uint64(b)),
		Length:               int32(be.Uint32(b[posLength:])),
		PartitionLeaderEpoch: int32(be.Uint32(b[posLeaderEpoch:])),
		Magic:                int8(b[posMagic]),
		CRC:                  be.Uint32(b[posCRC:]),
		Attributes:           int16(be.Uint16(b[posAttributes:])),
		LastOffsetDelta:      int32(be.Uint32(b[posLastDelta:])),
		FirstTimestamp:       int64(be.Uint64(b[posFirstTime:])),
		MaxTimestamp:         int64(be.Uint64(b[posMaxTime:])),
		ProducerID:           int64(be.Uint64(b[posProducerID:])),
		ProducerEpoch:        int16(be.Uint16(b[posProducerEpoch:])),
		BaseSequence:         int32(be.Uint32(b[posBaseSequence:])),
		Records:              int32(be.Uint32(b[posRecords:])),
	}
}

// Codec is the compression of the batch's records.
func (h Header) Codec() Codec { return Codec(h.Attributes & attrCodec) }

// IsLogAppendTime says whether every record's timestamp is MaxTimestamp, which the leader set.
func (h Header) IsLogAppendTime() bool { return h.Attributes&attrLogAppendTime != 0 }

// IsTransactional says whether the batch is part of a transaction.
func (h Header) IsTransactional() bool { return h.Attributes&attrTransactional != 0 }

// IsControl says whether the batch holds a transaction marker rather than a client's records.
func (h Header) IsControl() bool { return h.Attributes&attrControl != 0 }

// HasProducer says whether the batch carries a producer id and sequence (idempotent producer).
func (h Header) HasProducer() bool { return h.ProducerID >= 0 }

// LastOffset is the offset of the last record.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// LastSequence is the sequence of the last record. Sequences wrap from the largest int32 to 0 (KIP-98).
func (h Header) LastSequence() int32 {
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & math.MaxInt32)
}

// CheckCRC compares the checksum with the bytes. Error: ErrCorrupt.
func (b Batch) CheckCRC() error {
	if crc := checksum(b.Raw); crc != b.CRC {
		return fmt.Errorf("%w: checksum is %08x, the batch says %08x", ErrCorrupt, crc, b.CRC)
	}
	return nil
}

// Check says whether the header is one that a client's producer may send. It reads no record; CheckRecords does.
//
// Errors: ErrCorrupt (checksum), ErrTimestamp, ErrInvalid.
func (b Batch) Check() error {
	if err := b.CheckCRC(); err != nil {
		return err
	}
	switch {
	case b.BaseOffset != 0:
		return fmt.Errorf("%w: base offset is %d, a producer sends 0", ErrInvalid, b.BaseOffset)
	case b.Header.Records <= 0:
		return fmt.Errorf("%w: %d records", ErrInvalid, b.Header.Records)
	case b.LastOffsetDelta != b.Header.Records-1:
		return fmt.Errorf("%w: last offset delta %d with %d records", ErrInvalid, b.LastOffsetDelta, b.Header.Records)
	case !b.Codec().Known():
		return fmt.Errorf("%w: codec %d", ErrInvalid, b.Codec())
	case b.IsControl():
		return fmt.Errorf("%w: control batch from a client", ErrInvalid)
	case b.IsLogAppendTime():
		return fmt.Errorf("%w: type is log append time, a producer sends create time", ErrTimestamp)
	case b.Attributes&attrDeleteHorizon != 0:
		return fmt.Errorf("%w: delete horizon set by a client", ErrInvalid)
	case b.ProducerID < NoProducer:
		return fmt.Errorf("%w: producer id %d", ErrInvalid, b.ProducerID)
	case b.HasProducer() && (b.ProducerEpoch < 0 || b.BaseSequence < 0):
		return fmt.Errorf("%w: producer %d with epoch %d and sequence %d", ErrInvalid, b.ProducerID, b.ProducerEpoch, b.BaseSequence)
	case b.IsTransactional() && !b.HasProducer():
		return fmt.Errorf("%w: transactional without a producer id", ErrInvalid)
	}
	return nil
}

// castagnoli is the table of the CRC32C; hash/crc32 uses the processor's instruction for it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC32C that belongs into raw's header.
func checksum(raw []byte) uint32 { return crc32.Checksum(raw[posAttributes:], castagnoli) }
