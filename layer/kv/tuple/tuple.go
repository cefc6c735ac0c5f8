// Package tuple is FoundationDB's tuple encoding in pure Go: typed values as bytes whose order is the order of the values.
//
// The format is the one of FoundationDB's design/tuple.md, so that fdbcli and every binding read what it writes:
//
//	00          nil (00 ff inside a nested tuple)
//	01 ... 00   bytes, with each 00 written as 00 ff
//	02 ... 00   string, likewise
//	05 ... 00   nested tuple
//	0c..1c      integer of 8 to 0 to 8 bytes, big endian; negative ones as the complement of their magnitude
//	20, 21      float32 and float64, big endian, sign bit flipped (all bits for negatives)
//	26, 27      false, true
//	30          UUID, 16 bytes
//	33          versionstamp, 10 bytes of transaction version and 2 of user version
//
// Integers beyond 64 bits (0b and 1d) and 80-bit versionstamps (32) are refused when decoding.
package tuple

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/varvedb/varve/layer/kv"
)

// Element is one of: nil, []byte, string, int, int32, int64, uint, uint32, uint64, float32, float64, bool, UUID, Versionstamp, Tuple.
// Decoding gives int64 for every integer that fits and uint64 for those above.
type Element any

// Tuple is a sequence of elements.
type Tuple []Element

// UUID is 16 bytes that are ordered as bytes. A google/uuid.UUID converts to it directly.
type UUID [16]byte

// String is the usual hyphenated form.
func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Versionstamp orders rows by commit: the transaction's versionstamp, then an order that the writer chose within its transaction.
type Versionstamp struct {
	Transaction kv.Versionstamp
	User        uint16
}

// versionstampSize is the encoded size without the type code, bytes.
const versionstampSize = len(kv.Versionstamp{}) + 2

var incompleteTransaction = kv.Versionstamp(bytes.Repeat([]byte{0xff}, len(kv.Versionstamp{})))

// IncompleteVersionstamp stands for the versionstamp that the commit will get; see PackWithVersionstamp.
func IncompleteVersionstamp(user uint16) Versionstamp {
	return Versionstamp{Transaction: incompleteTransaction, User: user}
}

// Incomplete tells whether the commit has still to fill v in.
func (v Versionstamp) Incomplete() bool { return v.Transaction == incompleteTransaction }

// String shows the versionstamp as hex of the transaction part, a colon, and the user part.
func (v Versionstamp) String() string {
	if v.Incomplete() {
		return fmt.Sprintf("Versionstamp(?:%d)", v.User)
	}
	return fmt.Sprintf("Versionstamp(%x:%d)", v.Transaction[:], v.User)
}

// parseVersionstamp is the inverse of the 12-byte form.
func parseVersionstamp(b []byte) Versionstamp {
	var v Versionstamp
	n := copy(v.Transaction[:], b)
	v.User = binary.BigEndian.Uint16(b[n:])
	return v
}

// String shows a tuple as fdbcli users write it, for logs and inspection: ("varve", 7, b"\x00").
func (t Tuple) String() string {
	var sb strings.Builder
	t.format(&sb)
	return sb.String()
}

func (t Tuple) format(sb *strings.Builder) {
	sb.WriteByte('(')
	for i, e := range t {
		if i > 0 {
			sb.WriteString(", ")
		}
		switch v := e.(type) {
		case nil:
			sb.WriteString("nil")
		case string:
			sb.WriteString(strconv.Quote(v))
		case []byte:
			sb.WriteString("b" + strconv.Quote(string(v)))
		case Tuple:
			v.format(sb)
		default:
			fmt.Fprint(sb, v)
		}
	}
	sb.WriteByte(')')
}

// Range is the range of all keys that have t as a proper prefix: begin <= key < end. The key of t itself is not in it.
func (t Tuple) Range() (begin, end []byte) {
	p := t.Pack()
	begin = append(p[:len(p):len(p)], 0x00)
	end = append(p[:len(p):len(p)], 0xff)
	return begin, end
}

// Strinc is the first key that does not begin with prefix, or an error when there is none (prefix is empty or all 0xff).
func Strinc(prefix []byte) ([]byte, error) {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end, nil
		}
	}
	return nil, fmt.Errorf("tuple: no key follows those with prefix %x: %w", prefix, kv.ErrInvalid)
}

// PrefixRange is the range of all keys that begin with prefix, prefix itself among them.
func PrefixRange(prefix []byte) (begin, end []byte, err error) {
	end, err = Strinc(prefix)
	if err != nil {
		return nil, nil, err
	}
	return bytes.Clone(prefix), end, nil
}
