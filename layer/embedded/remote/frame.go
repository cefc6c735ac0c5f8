package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// hello is what both sides send first.
const hello = "varve-kv/2\n"

// maxFrame bounds a frame, bytes: more than a transaction, and more than any range that the layer reads at once.
const maxFrame = 64 << 20

// flushAt is how many bytes of writes a client gathers before it sends them without a read or commit.
const flushAt = 1 << 20

// Operations. Those up to opFlush have a reply, in the order of requests; a client need not wait for one before it sends the next.
const (
	opGet      byte = iota + 1 // flags, key → presence, value
	opGetRange                 // flags, limit, begin, end → count, then key and value of each
	opVersion                  // → version
	opSize                     // → size
	opWatch                    // key → nothing; watches are numbered from 0
	opCommit                   // → version, versionstamp
	opFlush                    // → nothing
	opAbort                    // ends the transaction; no reply
)

// Flags of reads.
const (
	flagSnapshot uint64 = 1 << iota
	flagReverse
)

// Writes, each with two byte strings.
const (
	writeSet byte = iota + 1
	writeClear
	writeClearRange
	writeAdd
	writeStampedKey
	writeStampedValue
	writeReadConflict
	writeWriteConflict
)

var errFrame = errors.New("malformed frame")

func writeFrame(w io.Writer, body []byte) error {
	if len(body) > maxFrame {
		return fmt.Errorf("frame of %d bytes, at most %d: %w", len(body), maxFrame, errFrame)
	}
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err := w.Write(append(out, body...))
	return err
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes, at most %d: %w", n, maxFrame, errFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return body, nil
}

func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

// decoder reads the parts of a body. After the first mistake everything is zero and err is set.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) byte() byte {
	if len(d.rest) < 1 {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// bytes gives a part of the body, with no room to grow into what follows; never nil.
func (d *decoder) bytes() []byte {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.fail()
		return []byte{}
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) fail() {
	d.rest = nil
	d.err = errFrame
}

// end tells whether the body was well-formed and is used up.
func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%d bytes too many: %w", len(d.rest), errFrame)
	}
	return d.err
}
