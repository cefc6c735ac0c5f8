package layer

import (
	"encoding/binary"
	"fmt"
	"math"
)

// rowDecoder reads the fields of a binary row; its first error stays.
type rowDecoder struct {
	buf []byte
	err error
}

func (d *rowDecoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.buf = nil
}

func (d *rowDecoder) version(want byte) {
	if len(d.buf) == 0 {
		d.fail("the row is empty")
		return
	}
	if d.buf[0] != want {
		d.fail("the row has version %d, want %d", d.buf[0], want)
		return
	}
	d.buf = d.buf[1:]
}

// uvarint reads a number that is not negative.
func (d *rowDecoder) uvarint() int64 {
	v, n := binary.Uvarint(d.buf)
	if n <= 0 || v > math.MaxInt64 {
		d.fail("a number is cut off or too large, %d bytes before the end", len(d.buf))
		return 0
	}
	d.buf = d.buf[n:]
	return int64(v)
}

func (d *rowDecoder) varint() int64 {
	v, n := binary.Varint(d.buf)
	if n <= 0 {
		d.fail("a number is cut off or too large, %d bytes before the end", len(d.buf))
		return 0
	}
	d.buf = d.buf[n:]
	return v
}

// bytes reads a length and as many bytes, at most limit.
func (d *rowDecoder) bytes(limit int64) []byte {
	n := d.uvarint()
	if n > limit || n > int64(len(d.buf)) {
		d.fail("%d bytes wanted, %d left, at most %d allowed", n, len(d.buf), limit)
		return nil
	}
	b := d.buf[:n]
	d.buf = d.buf[n:]
	return b
}

func (d *rowDecoder) finish() {
	if d.err == nil && len(d.buf) > 0 {
		d.fail("%d bytes follow the row", len(d.buf))
	}
}
