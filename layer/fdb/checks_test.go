package fdb

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

func TestChecks(t *testing.T) {
	long := bytes.Repeat([]byte("k"), kv.MaxKeySize)
	longer := append(bytes.Clone(long), 'k')
	stamped := func(size int, offset uint32) []byte {
		return binary.LittleEndian.AppendUint32(make([]byte, size), offset)
	}

	for name, err := range map[string]error{
		"empty key":          checkKey(nil),
		"longest key":        checkKey(long),
		"last user key":      checkKey([]byte{0xfe, 0xff}),
		"longest value":      checkValue(make([]byte, kv.MaxValueSize)),
		"whole space":        checkRange(nil, userEnd),
		"empty range":        checkRange([]byte("a"), []byte("a")),
		"to after longest":   checkRange(long, append(bytes.Clone(long), 0)),
		"stamp at the end":   checkStampedKey(stamped(stampSize+3, 3)),
		"stamp alone":        checkStampedValue(stamped(stampSize, 0)),
		"longest with stamp": checkStampedKey(stamped(kv.MaxKeySize-offsetSize, 0)),
	} {
		require.NoError(t, err, name)
	}
	for _, test := range []struct {
		name      string
		err, want error
	}{
		{"key", checkKey(longer), kv.ErrKeyTooLarge},
		{"system key", checkKey(userEnd), kv.ErrInvalid},
		{"value", checkValue(make([]byte, kv.MaxValueSize+1)), kv.ErrValueTooLarge},
		{"inverted", checkRange([]byte("b"), []byte("a")), kv.ErrInvalid},
		{"system range", checkRange(nil, []byte{0xff, 0}), kv.ErrInvalid},
		{"long end", checkRange(nil, append(longer, 'k')), kv.ErrKeyTooLarge},
		{"no offset", checkStampedKey([]byte{1, 2, 3}), kv.ErrInvalid},
		{"offset behind", checkStampedValue(stamped(stampSize, 1)), kv.ErrInvalid},
		{"offset that overflows", checkStampedKey(stamped(stampSize, 0xffffffff)), kv.ErrInvalid},
		{"stamped key", checkStampedKey(stamped(kv.MaxKeySize-offsetSize+1, 0)), kv.ErrKeyTooLarge},
		{"stamped value", checkStampedValue(stamped(kv.MaxValueSize-offsetSize+1, 0)), kv.ErrValueTooLarge},
	} {
		require.ErrorIs(t, test.err, test.want, test.name)
	}
}
