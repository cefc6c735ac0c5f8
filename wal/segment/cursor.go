package segment

import "encoding/binary"

// cursor reads a run of bytes whose checksum was good. The first failure sticks, and everything read after it is zero.
type cursor struct {
	b   []byte // what is left
	at  int64  // where b begins in the object
	err error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = corruptf(c.at, format, args...)
	}
	c.b = nil
}

func (c *cursor) skip(n int) {
	c.b, c.at = c.b[n:], c.at+int64(n)
}

func (c *cursor) byte() byte {
	if len(c.b) < 1 {
		c.fail("ends too early")
		return 0
	}
	v := c.b[0]
	c.skip(1)
	return v
}

func (c *cursor) bytes(n int64) []byte {
	if n > int64(len(c.b)) {
		c.fail("ends too early")
		return nil
	}
	v := c.b[:n]
	c.skip(int(n))
	return v
}

func (c *cursor) uint32() uint32 {
	if len(c.b) < 4 {
		c.fail("ends too early")
		return 0
	}
	v := binary.LittleEndian.Uint32(c.b)
	c.skip(4)
	return v
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail("malformed number")
		return 0
	}
	c.skip(n)
	return v
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.fail("malformed number")
		return 0
	}
	c.skip(n)
	return v
}

// length reads a number of at most limit.
func (c *cursor) length(limit int64) int64 {
	v := c.uvarint()
	if v > uint64(max(limit, 0)) {
		c.fail("a length of %d where at most %d fit", v, limit)
		return 0
	}
	return int64(v)
}

// count reads how many items follow that take at least size bytes each.
func (c *cursor) count(size int) int {
	return int(c.length(int64(len(c.b) / size)))
}

// end checks that nothing is left.
func (c *cursor) end() {
	if len(c.b) != 0 {
		c.fail("%d bytes too many", len(c.b))
	}
}
