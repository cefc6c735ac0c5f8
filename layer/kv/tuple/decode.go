package tuple

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed: the bytes are not a tuple that this package encodes.
var ErrMalformed = errors.New("malformed tuple")

// maxDepth bounds the nesting of tuples that Unpack follows.
const maxDepth = 32

// Unpack decodes a key that Pack made. It accepts canonical encodings only: every tuple has one, so Pack(Unpack(b)) is b.
// Errors wrap ErrMalformed and tell the offset. The result shares no memory with b.
func Unpack(b []byte) (Tuple, error) {
	d := decoder{buf: b}
	t, err := d.tuple(0)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// UnpackAfter decodes what follows prefix in key.
func UnpackAfter(prefix, key []byte) (Tuple, error) {
	rest, ok := bytes.CutPrefix(key, prefix)
	if !ok {
		return nil, fmt.Errorf("tuple: key %x does not begin with %x: %w", key, prefix, ErrMalformed)
	}
	return Unpack(rest)
}

type decoder struct {
	buf []byte
	pos int
}

func (d *decoder) fail(format string, args ...any) error {
	return fmt.Errorf("tuple: at byte %d of %d: %s: %w", d.pos, len(d.buf), fmt.Sprintf(format, args...), ErrMalformed)
}

// tuple decodes up to the end of the input (depth 0) or up to and including the terminator of a nested tuple.
func (d *decoder) tuple(depth int) (Tuple, error) {
	if depth > maxDepth {
		return nil, d.fail("nested more than %d deep", maxDepth)
	}
	t := Tuple{}
	for d.pos < len(d.buf) {
		if depth > 0 && d.buf[d.pos] == codeNil {
			d.pos++
			if d.pos == len(d.buf) || d.buf[d.pos] != escape {
				return t, nil
			}
			d.pos++
			t = append(t, nil)
			continue
		}
		e, err := d.element(depth)
		if err != nil {
			return nil, err
		}
		t = append(t, e)
	}
	if depth > 0 {
		return nil, d.fail("a nested tuple does not end")
	}
	return t, nil
}

func (d *decoder) element(depth int) (Element, error) {
	code := d.buf[d.pos]
	d.pos++
	switch {
	case code == codeNil:
		return nil, nil
	case code == codeBytes:
		return d.terminated()
	case code == codeString:
		b, err := d.terminated()
		return string(b), err
	case code == codeNested:
		return d.tuple(depth + 1)
	case code >= codeIntZero-maxIntSize && code <= codeIntZero+maxIntSize:
		return d.integer(int(code) - codeIntZero)
	case code == codeBigNegative, code == codeBigPositive:
		d.pos--
		return nil, d.fail("integers beyond 64 bits are not supported (code %#02x)", code)
	case code == codeFalse:
		return false, nil
	case code == codeTrue:
		return true, nil
	}
	return d.fixed(code)
}

// fixed decodes the types of a fixed size above zero.
func (d *decoder) fixed(code byte) (Element, error) {
	switch code {
	case codeFloat:
		b, err := d.take(4)
		if err != nil {
			return nil, err
		}
		return math.Float32frombits(restoreFloat32(binary.BigEndian.Uint32(b))), nil
	case codeDouble:
		b, err := d.take(8)
		if err != nil {
			return nil, err
		}
		return math.Float64frombits(restoreFloat64(binary.BigEndian.Uint64(b))), nil
	case codeUUID:
		b, err := d.take(len(UUID{}))
		if err != nil {
			return nil, err
		}
		return UUID(b), nil
	case codeVersionstamp:
		b, err := d.take(versionstampSize)
		if err != nil {
			return nil, err
		}
		return parseVersionstamp(b), nil
	}
	d.pos--
	return nil, d.fail("unknown type code %#02x", code)
}

func (d *decoder) take(n int) ([]byte, error) {
	if len(d.buf)-d.pos < n {
		return nil, d.fail("%d bytes wanted, %d left", n, len(d.buf)-d.pos)
	}
	b := d.buf[d.pos : d.pos+n]
	d.pos += n
	return b, nil
}

// terminated decodes bytes up to a 0x00 that is not escaped.
func (d *decoder) terminated() ([]byte, error) {
	out := []byte{}
	for {
		i := bytes.IndexByte(d.buf[d.pos:], 0)
		if i < 0 {
			return nil, d.fail("a string does not end")
		}
		out = append(out, d.buf[d.pos:d.pos+i]...)
		d.pos += i + 1
		if d.pos == len(d.buf) || d.buf[d.pos] != escape {
			return out, nil
		}
		out = append(out, 0)
		d.pos++
	}
}

// integer decodes a number of |size| bytes, negative if size is.
func (d *decoder) integer(size int) (Element, error) {
	negative := size < 0
	if negative {
		size = -size
	}
	b, err := d.take(size)
	if err != nil {
		return nil, err
	}
	var magnitude uint64
	for _, c := range b {
		if negative {
			c = ^c
		}
		magnitude = magnitude<<8 | uint64(c)
	}
	if byteLen(magnitude) != size {
		return nil, d.fail("an integer of %d bytes where %d suffice", size, byteLen(magnitude))
	}
	switch {
	case !negative && magnitude <= math.MaxInt64:
		return int64(magnitude), nil
	case !negative:
		return magnitude, nil
	case magnitude <= 1<<63:
		return int64(-magnitude), nil // two's complement; 1<<63 gives MinInt64
	}
	return nil, d.fail("integer below %d", int64(math.MinInt64))
}
