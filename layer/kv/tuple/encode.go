package tuple

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/varvedb/varve/layer/kv"
)

// Type codes.
const (
	codeNil          = 0x00
	codeBytes        = 0x01
	codeString       = 0x02
	codeNested       = 0x05
	codeBigNegative  = 0x0b
	codeIntZero      = 0x14 // an integer of n bytes has the code codeIntZero+n, a negative one codeIntZero-n
	codeBigPositive  = 0x1d
	codeFloat        = 0x20
	codeDouble       = 0x21
	codeFalse        = 0x26
	codeTrue         = 0x27
	codeUUID         = 0x30
	codeVersionstamp = 0x33

	maxIntSize = 8
	// escape follows a 0x00 that is data and not a terminator.
	escape = 0xff
)

// Pack encodes t. It panics on an element of a type that Element does not list, and on an incomplete versionstamp, which
// only PackWithVersionstamp can place: both are mistakes in the calling code and never depend on data.
func (t Tuple) Pack() []byte { return t.Append(nil) }

// Append appends the encoding of t to dst, as Pack.
func (t Tuple) Append(dst []byte) []byte {
	e := encoder{buf: dst, stamp: -1}
	e.tuple(t, false)
	if e.stamps > 0 {
		panic(fmt.Sprintf("tuple: Pack of %v, which has an incomplete versionstamp", t))
	}
	return e.buf
}

// PackWithVersionstamp gives the key prefix+t for SetVersionstampedKey (or the value for SetVersionstampedValue): t has exactly one
// incomplete versionstamp, and the offset of its 10 transaction bytes is appended as 4 bytes, little endian (API version 520 and later).
func (t Tuple) PackWithVersionstamp(prefix []byte) ([]byte, error) {
	e := encoder{buf: append([]byte(nil), prefix...), stamp: -1}
	e.tuple(t, false)
	if e.stamps != 1 {
		return nil, fmt.Errorf("tuple: %v has %d incomplete versionstamps, want 1: %w", t, e.stamps, kv.ErrInvalid)
	}
	return binary.LittleEndian.AppendUint32(e.buf, uint32(e.stamp)), nil
}

// HasIncompleteVersionstamp tells whether t, or a tuple in it, has a versionstamp that the commit has still to fill in.
func (t Tuple) HasIncompleteVersionstamp() bool {
	for _, element := range t {
		switch v := element.(type) {
		case Versionstamp:
			if v.Incomplete() {
				return true
			}
		case Tuple:
			if v.HasIncompleteVersionstamp() {
				return true
			}
		}
	}
	return false
}

type encoder struct {
	buf    []byte
	stamps int // incomplete versionstamps met
	stamp  int // where the last one's transaction bytes begin
}

func (e *encoder) tuple(t Tuple, nested bool) {
	for _, element := range t {
		e.element(element, nested)
	}
}

func (e *encoder) element(element Element, nested bool) {
	switch v := element.(type) {
	case nil:
		e.buf = append(e.buf, codeNil)
		if nested {
			e.buf = append(e.buf, escape)
		}
	case []byte:
		encodeTerminated(e, codeBytes, v)
	case string:
		encodeTerminated(e, codeString, v)
	case int:
		e.signed(int64(v))
	case int32:
		e.signed(int64(v))
	case int64:
		e.signed(v)
	case uint:
		e.unsigned(uint64(v))
	case uint32:
		e.unsigned(uint64(v))
	case uint64:
		e.unsigned(v)
	case float32:
		e.buf = binary.BigEndian.AppendUint32(append(e.buf, codeFloat), orderFloat32(math.Float32bits(v)))
	case float64:
		e.buf = binary.BigEndian.AppendUint64(append(e.buf, codeDouble), orderFloat64(math.Float64bits(v)))
	case bool:
		if v {
			e.buf = append(e.buf, codeTrue)
		} else {
			e.buf = append(e.buf, codeFalse)
		}
	case UUID:
		e.buf = append(append(e.buf, codeUUID), v[:]...)
	case Versionstamp:
		e.versionstamp(v)
	case Tuple:
		e.buf = append(e.buf, codeNested)
		e.tuple(v, true)
		e.buf = append(e.buf, codeNil)
	default:
		panic(fmt.Sprintf("tuple: an element of type %T cannot be encoded", element))
	}
}

func encodeTerminated[S []byte | string](e *encoder, code byte, s S) {
	e.buf = append(e.buf, code)
	for i := range len(s) {
		e.buf = append(e.buf, s[i])
		if s[i] == 0 {
			e.buf = append(e.buf, escape)
		}
	}
	e.buf = append(e.buf, 0)
}

func (e *encoder) unsigned(v uint64) {
	n := byteLen(v)
	e.buf = append(e.buf, byte(codeIntZero+n))
	e.bigEndian(v, n)
}

func (e *encoder) signed(v int64) {
	if v >= 0 {
		e.unsigned(uint64(v))
		return
	}
	// A negative number of n bytes is stored as 256^n - 1 - |v|, so that larger magnitudes come first.
	magnitude := uint64(-(v + 1)) + 1 // MinInt64 has no positive counterpart
	n := byteLen(magnitude)
	e.buf = append(e.buf, byte(codeIntZero-n))
	e.bigEndian(^magnitude, n)
}

// bigEndian appends the n low bytes of v.
func (e *encoder) bigEndian(v uint64, n int) {
	for i := n - 1; i >= 0; i-- {
		e.buf = append(e.buf, byte(v>>(8*i)))
	}
}

// byteLen is how many bytes v needs; 0 for zero.
func byteLen(v uint64) int { return (bits.Len64(v) + 7) / 8 }

func (e *encoder) versionstamp(v Versionstamp) {
	e.buf = append(e.buf, codeVersionstamp)
	if v.Incomplete() {
		e.stamps++
		e.stamp = len(e.buf)
	}
	e.buf = append(e.buf, v.Transaction[:]...)
	e.buf = binary.BigEndian.AppendUint16(e.buf, v.User)
}

// orderFloat64 makes the order of the bits as an unsigned number the order of the floats.
func orderFloat64(b uint64) uint64 {
	if b>>63 != 0 {
		return ^b
	}
	return b | 1<<63
}

func restoreFloat64(b uint64) uint64 {
	if b>>63 != 0 {
		return b &^ (1 << 63)
	}
	return ^b
}

func orderFloat32(b uint32) uint32 {
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

func restoreFloat32(b uint32) uint32 {
	if b>>31 != 0 {
		return b &^ (1 << 31)
	}
	return ^b
}
