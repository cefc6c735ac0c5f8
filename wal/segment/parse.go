package segment

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// Object is what the tail of an object says.
type Object struct {
	Header
	Size    int64 // bytes
	TailPos int64 // where the tail begins: the indexes, then directory and footer
	Parts   []Part

	tail []byte // from TailPos on
}

// ParseTail reads the tail of an object of size bytes; tail is any number of its last bytes. When those are too few it returns need, the
// number that it takes, and no object. A tail that is not what Encode wrote is a *CorruptError. The result refers to tail.
func ParseTail(tail []byte, size int64) (object *Object, need int64, err error) {
	if size < int64(len(head)+minDirLen+footerLen) || size > MaxObject {
		return nil, 0, corruptf(0, "an object of %d bytes", size)
	}
	if int64(len(tail)) > size {
		return nil, 0, corruptf(0, "a tail of %d bytes of an object of %d", len(tail), size)
	}
	if len(tail) < footerLen {
		return nil, min(TailRead, size), nil
	}
	tailLen, dirLen, dirCRC, err := parseFooter(tail[len(tail)-footerLen:], size)
	if err != nil {
		return nil, 0, err
	}
	if tailLen > int64(len(tail)) {
		return nil, tailLen, nil
	}
	if int64(len(tail)) == size && string(tail[:len(head)]) != head {
		return nil, 0, corruptf(0, "does not begin with the magic number of this format")
	}
	tail = tail[int64(len(tail))-tailLen:]
	o := &Object{Size: size, TailPos: size - tailLen, tail: tail}
	dirAt := tailLen - footerLen - dirLen
	directory := tail[dirAt : dirAt+dirLen]
	if got := crc32.Checksum(directory, castagnoli); got != dirCRC {
		return nil, 0, corruptf(o.TailPos+dirAt, "directory has checksum %08x, not %08x", got, dirCRC)
	}
	c := &cursor{b: directory, at: o.TailPos + dirAt}
	o.parseDirectory(c, dirAt)
	if c.err != nil {
		return nil, 0, c.err
	}
	return o, 0, nil
}

func parseFooter(f []byte, size int64) (tailLen, dirLen int64, dirCRC uint32, err error) {
	at := size - footerLen
	if string(f[footerLen-len(footMagic):]) != footMagic {
		return 0, 0, 0, corruptf(at, "does not end with the magic number of this format")
	}
	if got, want := crc32.Checksum(f[:24], castagnoli), binary.LittleEndian.Uint32(f[24:]); got != want {
		return 0, 0, 0, corruptf(at, "footer has checksum %08x, not %08x", got, want)
	}
	if v := binary.LittleEndian.Uint16(f[20:]); v != version {
		return 0, 0, 0, corruptf(at, "format version %d is unknown", v)
	}
	tailLen, dirLen = int64(binary.LittleEndian.Uint32(f)), int64(binary.LittleEndian.Uint32(f[4:]))
	if stated := binary.LittleEndian.Uint64(f[8:]); stated != uint64(size) {
		return 0, 0, 0, corruptf(at, "object has %d bytes, its footer says %d", size, stated)
	}
	if tailLen > MaxTail || tailLen > size-int64(len(head)) || dirLen < minDirLen || dirLen > tailLen-footerLen {
		return 0, 0, 0, corruptf(at, "tail of %d bytes with a directory of %d in an object of %d", tailLen, dirLen, size)
	}
	return tailLen, dirLen, binary.LittleEndian.Uint32(f[16:]), nil
}

// parseDirectory reads header and parts. indexBytes is the length of all indexes, which lie directly before the directory.
func (o *Object) parseDirectory(c *cursor, indexBytes int64) {
	o.Kind = Kind(c.byte())
	o.Cluster = string(c.bytes(int64(c.byte())))
	o.Node, o.NodeEpoch, o.Seq = c.varint(), c.varint(), c.varint()
	copy(o.Incarnation[:], c.bytes(int64(len(o.Incarnation))))
	if o.Kind < KindSegment || o.Kind > KindSeal {
		c.fail("%s", o.Kind)
	}
	n := c.count(minPartLen)
	if c.err != nil {
		return
	}
	if o.Kind == KindSeal && n != 0 {
		c.fail("a seal with %d parts", n)
		return
	}
	if n > 0 {
		o.Parts = make([]Part, n)
	}
	pos, index := int64(len(head)), o.TailPos
	stream, timestamp := int64(0), int64(0)
	for i := range o.Parts {
		p := &o.Parts[i]
		p.Stream = stream + c.varint()
		p.Epoch = c.varint()
		p.Base = c.varint()
		p.Records = c.length(math.MaxInt64)
		p.Pos, p.Len = pos, c.length(o.TailPos-pos)
		p.IndexPos, p.IndexLen = index, c.length(o.TailPos+indexBytes-index)
		p.MaxTimestamp = timestamp + c.varint()
		if c.err != nil {
			return
		}
		if p.Base < 0 || p.Records < 1 || p.Base > math.MaxInt64-p.Records || p.Len < 1 || (i > 0 && p.Stream < stream) {
			c.fail("part of stream %d with %d records from offset %d in %d bytes", p.Stream, p.Records, p.Base, p.Len)
			return
		}
		p.End = p.Base + p.Records
		pos, index = pos+p.Len, index+p.IndexLen
		stream, timestamp = p.Stream, p.MaxTimestamp
	}
	if pos != o.TailPos || index != o.TailPos+indexBytes {
		c.fail("parts end at byte %d and indexes at %d, not at %d and %d", pos, index, o.TailPos, o.TailPos+indexBytes)
		return
	}
	c.end()
}

// Index parses the index of part i.
func (o *Object) Index(i int) (Index, error) {
	p := o.Parts[i]
	from := p.IndexPos - o.TailPos
	x, err := ParseIndex(o.tail[from:from+p.IndexLen], p)
	if err == nil && (x.Batches != nil) != (o.Kind == KindSegment) {
		return Index{}, corruptf(p.IndexPos, "the index of a %s lists batches: %t", o.Kind, x.Batches != nil)
	}
	return x, err
}

// ParseIndex parses the block index b of a part, read from the part's IndexPos. Bytes that are not the index of that part (its stream,
// offsets and place) are a *CorruptError.
func ParseIndex(b []byte, part Part) (Index, error) {
	if int64(len(b)) != part.IndexLen || len(b) < crcLen {
		return Index{}, corruptf(part.IndexPos, "an index of %d bytes, not %d", len(b), part.IndexLen)
	}
	body := b[:len(b)-crcLen]
	if got, want := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(b[len(body):]); got != want {
		return Index{}, corruptf(part.IndexPos, "index of stream %d has checksum %08x, not %08x", part.Stream, got, want)
	}
	c := &cursor{b: body, at: part.IndexPos}
	x := Index{Stream: c.varint(), Base: c.varint()}
	pos := c.length(MaxObject)
	flags := c.byte()
	if c.err == nil && (x.Stream != part.Stream || x.Base != part.Base || pos != part.Pos || flags > flagBatches) {
		c.fail("index of stream %d from offset %d at byte %d with flags %d, not of stream %d from %d at %d", x.Stream, x.Base, pos, flags, part.Stream, part.Base, part.Pos)
	}
	batches := x.parseBlocks(c, part)
	if flags == flagBatches {
		x.parseBatches(c, batches)
	}
	c.end()
	if c.err != nil {
		return Index{}, c.err
	}
	return x, nil
}

// parseBlocks reads the blocks and gives the number of their batches.
func (x *Index) parseBlocks(c *cursor, part Part) int64 {
	n := c.count(minBlockLen)
	if c.err != nil {
		return 0
	}
	x.Blocks = make([]Block, n)
	offset, pos, end := part.Base, part.Pos, part.Pos+part.Len
	timestamp, batches := int64(0), int64(0)
	for i := range x.Blocks {
		b := &x.Blocks[i]
		b.Base, b.End = offset, offset+c.length(part.End-offset)
		b.Pos, b.Len = pos, c.length(end-pos)
		b.MaxTimestamp = timestamp + c.varint()
		b.Batches = int(c.length(min(b.End-b.Base, b.Len)))
		b.CRC = c.uint32()
		if c.err == nil && (b.Len < 1 || b.Batches < 1) {
			c.fail("block %d with %d batches in %d bytes", i, b.Batches, b.Len)
		}
		if c.err != nil {
			return 0
		}
		offset, pos, timestamp = b.End, b.Pos+b.Len, b.MaxTimestamp
		batches += int64(b.Batches)
	}
	if offset != part.End || pos != end {
		c.fail("blocks end at offset %d and byte %d, not at %d and %d", offset, pos, part.End, end)
	}
	return batches
}

// parseBatches reads the n batches of the blocks that were read.
func (x *Index) parseBatches(c *cursor, n int64) {
	if c.err == nil && n > int64(len(c.b))/minBatchLen {
		c.fail("%d batches in %d bytes", n, len(c.b))
	}
	if c.err != nil {
		return
	}
	x.Batches = make([]Batch, 0, n)
	timestamp, producer := int64(0), int64(NoProducer)
	for _, block := range x.Blocks {
		offset, pos := block.Base, block.Pos
		for range block.Batches {
			b := Batch{Base: offset, Pos: pos}
			b.Len = c.length(block.Pos + block.Len - pos)
			records := c.length(block.End - offset)
			b.Last = offset + records - 1
			b.MaxTimestamp = timestamp + c.varint()
			b.Producer.ID = producer + c.varint()
			if b.Producer.ID != NoProducer {
				b.Producer.Epoch, b.Producer.FirstSeq = c.varint(), c.varint()
				b.Producer.LastSeq = b.Producer.FirstSeq + c.varint()
			}
			if c.err == nil && (records < 1 || b.Len < 1) {
				c.fail("batch at offset %d with %d records in %d bytes", offset, records, b.Len)
			}
			if c.err != nil {
				return
			}
			x.Batches = append(x.Batches, b)
			offset, pos = offset+records, pos+b.Len
			timestamp, producer = b.MaxTimestamp, b.Producer.ID
		}
		if offset != block.End || pos != block.Pos+block.Len {
			c.fail("batches end at offset %d and byte %d, not at %d and %d", offset, pos, block.End, block.Pos+block.Len)
			return
		}
	}
}

// CheckBlock says whether data, read from the block's place, is what was written: nil or a *CorruptError.
func CheckBlock(b Block, data []byte) error {
	if int64(len(data)) != b.Len {
		return corruptf(b.Pos, "a block of %d bytes, not %d", len(data), b.Len)
	}
	if got := crc32.Checksum(data, castagnoli); got != b.CRC {
		return corruptf(b.Pos, "block of offsets %d to %d has checksum %08x, not %08x", b.Base, b.End, got, b.CRC)
	}
	return nil
}

// Decode checks every byte of a whole object. For a segment it gives the entries by stream, with data that refers to b; for other kinds
// none, since their indexes list no batches.
func Decode(b []byte) (*Object, []Entry, error) {
	o, need, err := ParseTail(b, int64(len(b)))
	if err != nil {
		return nil, nil, err
	}
	if need != 0 {
		return nil, nil, corruptf(0, "a tail of %d bytes in an object of %d", need, len(b))
	}
	var entries []Entry
	for i, p := range o.Parts {
		x, err := o.Index(i)
		if err != nil {
			return nil, nil, err
		}
		for _, block := range x.Blocks {
			if err := CheckBlock(block, b[block.Pos:block.Pos+block.Len]); err != nil {
				return nil, nil, err
			}
		}
		for _, batch := range x.Batches {
			entries = append(entries, Entry{
				Stream: p.Stream, Epoch: p.Epoch, Base: batch.Base, Last: batch.Last, MaxTimestamp: batch.MaxTimestamp,
				Producer: batch.Producer, Data: b[batch.Pos : batch.Pos+batch.Len : batch.Pos+batch.Len],
			})
		}
	}
	return o, entries, nil
}
