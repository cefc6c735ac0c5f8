package fdb

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

const (
	stampSize  = 10 // bytes of a versionstamp
	offsetSize = 4  // bytes of the offset behind a versionstamped key or value
	// shownBytes is how much of a key an error message shows.
	shownBytes = 64
)

// userEnd is the end of the user key space: keys from there on are FoundationDB's own.
var userEnd = []byte{0xff}

// The library reports what is wrong with a write no earlier than the commit and without naming the key. These checks do
// it first.

func checkKey(key []byte) error {
	if len(key) > kv.MaxKeySize {
		return fmt.Errorf("foundationdb: %w: key %s is %d bytes, at most %d", kv.ErrKeyTooLarge, shown(key), len(key), kv.MaxKeySize)
	}
	if bytes.Compare(key, userEnd) >= 0 {
		return fmt.Errorf("foundationdb: %w: key %s is outside the user key space", kv.ErrInvalid, shown(key))
	}
	return nil
}

func checkValue(value []byte) error {
	if len(value) > kv.MaxValueSize {
		return fmt.Errorf("foundationdb: %w: value of %d bytes, at most %d", kv.ErrValueTooLarge, len(value), kv.MaxValueSize)
	}
	return nil
}

func checkRange(begin, end []byte) error {
	if bytes.Compare(begin, end) > 0 {
		return fmt.Errorf("foundationdb: %w: inverted range from %s to %s", kv.ErrInvalid, shown(begin), shown(end))
	}
	return checkBounds(begin, end)
}

// checkBounds is checkRange for reads, where an inverted range is an empty one. Bounds may have one byte more
// than a key, so that the key after the longest one can end a range.
func checkBounds(begin, end []byte) error {
	for _, key := range [][]byte{begin, end} {
		if bytes.Compare(key, userEnd) > 0 {
			return fmt.Errorf("foundationdb: %w: range bound %s is outside the user key space", kv.ErrInvalid, shown(key))
		}
		if len(key) > kv.MaxKeySize+1 {
			return fmt.Errorf("foundationdb: %w: range bound %s is %d bytes, at most %d",
				kv.ErrKeyTooLarge, shown(key), len(key), kv.MaxKeySize+1)
		}
	}
	return nil
}

// checkStampedKey counts the offset as a part of the key, as the library does.
func checkStampedKey(key []byte) error {
	return firstOf(checkStamped("key", key), checkKey(key))
}

// checkStampedValue counts the offset as a part of the value.
func checkStampedValue(value []byte) error {
	return firstOf(checkStamped("value", value), checkValue(value))
}

// checkStamped checks the offset in the last four bytes.
func checkStamped(what string, data []byte) error {
	if len(data) < offsetSize {
		return fmt.Errorf("foundationdb: %w: versionstamped %s of %d bytes has no offset", kv.ErrInvalid, what, len(data))
	}
	rest := data[:len(data)-offsetSize]
	offset := binary.LittleEndian.Uint32(data[len(rest):])
	if uint64(offset)+stampSize > uint64(len(rest)) {
		return fmt.Errorf("foundationdb: %w: versionstamp offset %d in a %s of %d bytes", kv.ErrInvalid, offset, what, len(rest))
	}
	return nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// shown is the start of a key, quoted.
func shown(key []byte) string {
	if len(key) > shownBytes {
		return fmt.Sprintf("%q...", key[:shownBytes])
	}
	return fmt.Sprintf("%q", key)
}
