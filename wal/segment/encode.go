package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// The constants of the layout. wal/README.md has the picture.
const (
	head      = "VARVE\x00\x01\x00" // the first bytes of every object; the last two are the version
	footMagic = "VARVEEND"          // the last bytes of every object
	version   = 1
	footerLen = 36
	crcLen    = 4

	flagBatches = 1 // the index lists batches

	// Smallest encodings, to bound counts before anything is allocated.
	minBlockLen = 8
	minBatchLen = 4
	minPartLen  = 7
	minDirLen   = 22
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Options of Encode.
type Options struct {
	// BlockSize is the size that a block is filled up to, bytes; a larger batch has a block of its own. 0 means DefaultBlockSize.
	BlockSize int
}

// Check says what makes an entry unfit to be stored, or nil.
func (e *Entry) Check() error {
	switch {
	case e.Base < 0 || e.Last < e.Base || e.Last == 1<<63-1:
		return fmt.Errorf("entry of stream %d has offsets %d to %d", e.Stream, e.Base, e.Last)
	case len(e.Data) == 0:
		return fmt.Errorf("entry of stream %d at offset %d is empty", e.Stream, e.Base)
	case int64(len(e.Data)) > 1<<31:
		return fmt.Errorf("entry of stream %d at offset %d has %d bytes", e.Stream, e.Base, len(e.Data))
	}
	return nil
}

// Encode makes the bytes of an object. Entries are grouped by stream, in ascending order of stream ids; those of one stream keep their
// order, and form a new part where the stream epoch changes or an offset is left out. The entries' data is copied, once. Equal arguments
// give equal bytes. It panics for entries that Entry.Check refuses and for a cluster name longer than MaxCluster.
func Encode(h Header, entries []Entry, o Options) ([]byte, []Part) {
	if len(h.Cluster) > MaxCluster {
		panic(fmt.Sprintf("segment: cluster name of %d bytes", len(h.Cluster)))
	}
	blockSize := o.BlockSize
	if blockSize <= 0 {
		blockSize = DefaultBlockSize
	}
	total := 0
	for i := range entries {
		if err := entries[i].Check(); err != nil {
			panic("segment: " + err.Error())
		}
		total += len(entries[i].Data)
	}
	order, streams := byStream(entries)
	e := encoder{entries: entries, order: order, blockSize: blockSize, batches: h.Kind == KindSegment}
	if streams > 0 { // mostly the numbers that it takes
		e.parts, e.perPart = make([]Part, 0, streams), make([]int, 0, streams)
		e.blocks = make([]Block, 0, streams+total/blockSize)
	}
	// The tail is rarely longer than this; append grows the buffer when it is.
	e.buf = make([]byte, 0, len(head)+total+footerLen+64+len(h.Cluster)+streams*96+len(entries)*32+(total/blockSize+1)*32)
	e.buf = append(e.buf, head...)
	e.writeBlocks()
	tailPos := len(e.buf)
	e.writeIndexes()
	e.writeDirectory(h, tailPos)
	return e.buf, e.parts
}

// EncodeSeal makes the bytes of a seal: an object without parts. The header's kind is set.
func EncodeSeal(h Header) []byte {
	h.Kind = KindSeal
	b, _ := Encode(h, nil, Options{})
	return b
}

// byStream gives the entries' positions grouped by ascending stream, in their order within a stream; nil when they are so already.
func byStream(entries []Entry) (order []int32, streams int) {
	if len(entries) == 0 {
		return nil, 0
	}
	sorted := true
	for i := 1; i < len(entries); i++ {
		if entries[i].Stream != entries[i-1].Stream {
			streams++
			sorted = sorted && entries[i].Stream > entries[i-1].Stream
		}
	}
	if sorted {
		return nil, streams + 1
	}
	type group struct {
		stream      int64
		count, next int32
	}
	var groups []group
	index := make(map[int64]int32)
	of := make([]int32, len(entries))
	current := int32(-1)
	for i := range entries {
		if i == 0 || entries[i].Stream != entries[i-1].Stream {
			g, ok := index[entries[i].Stream]
			if !ok {
				g = int32(len(groups))
				groups = append(groups, group{stream: entries[i].Stream})
				index[entries[i].Stream] = g
			}
			current = g
		}
		of[i] = current
		groups[current].count++
	}
	rank := make([]int32, len(groups))
	for i := range rank {
		rank[i] = int32(i)
	}
	slices.SortFunc(rank, func(a, b int32) int {
		if groups[a].stream < groups[b].stream {
			return -1
		}
		return 1
	})
	at := int32(0)
	for _, g := range rank {
		groups[g].next = at
		at += groups[g].count
	}
	order = make([]int32, len(entries))
	for i := range entries {
		g := &groups[of[i]]
		order[g.next] = int32(i)
		g.next++
	}
	return order, len(groups)
}

// encoder writes one object front to back.
type encoder struct {
	entries   []Entry
	order     []int32
	blockSize int
	batches   bool
	buf       []byte
	parts     []Part
	blocks    []Block
	perPart   []int // how many of blocks each part has
}

func (e *encoder) at(i int) *Entry {
	if e.order == nil {
		return &e.entries[i]
	}
	return &e.entries[e.order[i]]
}

// writeBlocks copies the data and finds the parts and blocks.
func (e *encoder) writeBlocks() {
	for i := range e.entries {
		x := e.at(i)
		e.begin(x)
		e.buf = append(e.buf, x.Data...)
		b := &e.blocks[len(e.blocks)-1]
		b.End, b.Len, b.Batches = x.Last+1, b.Len+int64(len(x.Data)), b.Batches+1
		b.MaxTimestamp = max(b.MaxTimestamp, x.MaxTimestamp)
	}
	e.endBlock()
	block := 0
	for i := range e.parts {
		p := &e.parts[i]
		for _, b := range e.blocks[block : block+e.perPart[i]] {
			p.End, p.Len = b.End, p.Len+b.Len
			p.MaxTimestamp = max(p.MaxTimestamp, b.MaxTimestamp)
		}
		p.Records = p.End - p.Base
		block += e.perPart[i]
	}
}

// begin opens a part and a block for the entry where it cannot go on with the last ones.
func (e *encoder) begin(x *Entry) {
	newPart := len(e.parts) == 0
	if !newPart {
		p, b := &e.parts[len(e.parts)-1], &e.blocks[len(e.blocks)-1]
		newPart = p.Stream != x.Stream || p.Epoch != x.Epoch || b.End != x.Base
		if !newPart && b.Len+int64(len(x.Data)) <= int64(e.blockSize) {
			return
		}
	}
	e.endBlock()
	pos := int64(len(e.buf))
	if newPart {
		e.parts = append(e.parts, Part{Stream: x.Stream, Epoch: x.Epoch, Base: x.Base, Pos: pos, MaxTimestamp: x.MaxTimestamp})
		e.perPart = append(e.perPart, 0)
	}
	e.perPart[len(e.perPart)-1]++
	e.blocks = append(e.blocks, Block{Base: x.Base, End: x.Base, Pos: pos, MaxTimestamp: x.MaxTimestamp})
}

// endBlock computes the checksum of the last block while its bytes are in the processor's cache.
func (e *encoder) endBlock() {
	if n := len(e.blocks); n > 0 {
		b := &e.blocks[n-1]
		b.CRC = crc32.Checksum(e.buf[b.Pos:b.Pos+b.Len], castagnoli)
	}
}

// writeIndexes appends the index of each part.
func (e *encoder) writeIndexes() {
	block, entry := 0, 0
	for i := range e.parts {
		p := &e.parts[i]
		start := len(e.buf)
		b := binary.AppendVarint(e.buf, p.Stream)
		b = binary.AppendVarint(b, p.Base)
		b = binary.AppendUvarint(b, uint64(p.Pos))
		flags := byte(0)
		if e.batches {
			flags = flagBatches
		}
		b = append(b, flags)
		blocks := e.blocks[block : block+e.perPart[i]]
		b = appendBlocks(b, blocks)
		n := 0
		for j := range blocks {
			n += blocks[j].Batches
		}
		if e.batches {
			b = e.appendBatches(b, entry, n)
		}
		e.buf = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
		p.IndexPos, p.IndexLen = int64(start), int64(len(e.buf)-start)
		block += len(blocks)
		entry += n
	}
}

func appendBlocks(b []byte, blocks []Block) []byte {
	b = binary.AppendUvarint(b, uint64(len(blocks)))
	timestamp := int64(0)
	for i := range blocks {
		x := &blocks[i]
		b = binary.AppendUvarint(b, uint64(x.End-x.Base))
		b = binary.AppendUvarint(b, uint64(x.Len))
		b = binary.AppendVarint(b, x.MaxTimestamp-timestamp)
		b = binary.AppendUvarint(b, uint64(x.Batches))
		b = binary.LittleEndian.AppendUint32(b, x.CRC)
		timestamp = x.MaxTimestamp
	}
	return b
}

func (e *encoder) appendBatches(b []byte, first, n int) []byte {
	timestamp, producer := int64(0), int64(NoProducer)
	for i := first; i < first+n; i++ {
		x := e.at(i)
		b = binary.AppendUvarint(b, uint64(len(x.Data)))
		b = binary.AppendUvarint(b, uint64(x.Last-x.Base+1))
		b = binary.AppendVarint(b, x.MaxTimestamp-timestamp)
		b = binary.AppendVarint(b, x.Producer.ID-producer)
		if x.Producer.ID != NoProducer {
			b = binary.AppendVarint(b, x.Producer.Epoch)
			b = binary.AppendVarint(b, x.Producer.FirstSeq)
			b = binary.AppendVarint(b, x.Producer.LastSeq-x.Producer.FirstSeq)
		}
		timestamp, producer = x.MaxTimestamp, x.Producer.ID
	}
	return b
}

// writeDirectory appends the directory and the footer.
func (e *encoder) writeDirectory(h Header, tailPos int) {
	start := len(e.buf)
	b := append(e.buf, byte(h.Kind), byte(len(h.Cluster)))
	b = append(b, h.Cluster...)
	b = binary.AppendVarint(b, h.Node)
	b = binary.AppendVarint(b, h.NodeEpoch)
	b = binary.AppendVarint(b, h.Seq)
	b = append(b, h.Incarnation[:]...)
	b = binary.AppendUvarint(b, uint64(len(e.parts)))
	stream, timestamp := int64(0), int64(0)
	for i := range e.parts {
		p := &e.parts[i]
		b = binary.AppendVarint(b, p.Stream-stream)
		b = binary.AppendVarint(b, p.Epoch)
		b = binary.AppendVarint(b, p.Base)
		b = binary.AppendUvarint(b, uint64(p.Records))
		b = binary.AppendUvarint(b, uint64(p.Len))
		b = binary.AppendUvarint(b, uint64(p.IndexLen))
		b = binary.AppendVarint(b, p.MaxTimestamp-timestamp)
		stream, timestamp = p.Stream, p.MaxTimestamp
	}
	directory := len(b) - start
	crc := crc32.Checksum(b[start:], castagnoli)
	footer := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(footer+footerLen-tailPos))
	b = binary.LittleEndian.AppendUint32(b, uint32(directory))
	b = binary.LittleEndian.AppendUint64(b, uint64(footer+footerLen))
	b = binary.LittleEndian.AppendUint32(b, crc)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[footer:], castagnoli))
	e.buf = append(b, footMagic...)
}
