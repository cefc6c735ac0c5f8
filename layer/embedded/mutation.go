package embedded

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

type mutationKind uint8

const (
	mutationSet mutationKind = iota
	mutationClear
	mutationClearRange // key to param
	mutationAdd
	mutationStampedKey   // param is the value; offset is where the versionstamp goes in key
	mutationStampedValue // offset is where the versionstamp goes in param
)

// mutation is one write of a transaction, applied in the order of the calls when it commits. Its slices belong to the transaction.
type mutation struct {
	kind   mutationKind
	key    []byte
	param  []byte
	offset int
}

// stamped gives the key and value with the versionstamp filled in.
func (m mutation) stamped(stamp kv.Versionstamp) (key, value []byte) {
	switch m.kind {
	case mutationStampedKey:
		return fill(m.key, m.offset, stamp), m.param
	case mutationStampedValue:
		return m.key, fill(m.param, m.offset, stamp)
	}
	return m.key, m.param
}

func fill(b []byte, offset int, stamp kv.Versionstamp) []byte {
	out := bytes.Clone(b)
	copy(out[offset:], stamp[:])
	return out
}

// cutStampOffset takes the offset of a versionstamp, 4 bytes little endian, from the end of b.
func cutStampOffset(b []byte) (rest []byte, offset int, err error) {
	const offsetSize = 4
	if len(b) < offsetSize {
		return nil, 0, fmt.Errorf("%d bytes have no room for the offset of a versionstamp: %w", len(b), kv.ErrInvalid)
	}
	rest = b[:len(b)-offsetSize]
	at := binary.LittleEndian.Uint32(b[len(rest):])
	if uint64(at)+uint64(len(kv.Versionstamp{})) > uint64(len(rest)) {
		return nil, 0, fmt.Errorf("versionstamp offset %d in %d bytes: %w", at, len(rest), kv.ErrInvalid)
	}
	return rest, int(at), nil
}

// add is FoundationDB's atomic ADD: param plus existing, little endian, at the length of param, dropping the carry.
func add(existing, param []byte) []byte {
	sum := make([]byte, len(param))
	var carry uint16
	for i := range param {
		carry += uint16(param[i])
		if i < len(existing) {
			carry += uint16(existing[i])
		}
		sum[i] = byte(carry)
		carry >>= 8
	}
	return sum
}
