package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is how a batch's records are compressed; the numbers are those of the attributes' bits 0-2.
type Codec int8

// The codecs of record batch v2.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// Known says whether the codec is one that record batch v2 has.
func (c Codec) Known() bool { return c >= None && c <= Zstd }

func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", int8(c))
}

// maxZstdWindow is the largest window that a frame may ask for: what the highest level of the reference encoder uses.
const maxZstdWindow = 128 << 20

// The decoders are costly to make and hold no state between uses, so they are kept.
var (
	gzipReaders  = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Readers   = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdDecoders = sync.Pool{New: func() any {
		// One at a time keeps it free of goroutines; these options are always accepted.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow),
			zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic(err)
		}
		return d
	}}
)

// decompress appends src, decompressed, to dst. No more than max bytes are produced.
//
// Errors: ErrTooLarge, ErrCorrupt.
func decompress(dst []byte, codec Codec, src []byte, max int) ([]byte, error) {
	switch codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		r := gzipReaders.Get().(*gzip.Reader)
		defer gzipReaders.Put(r)
		if err := r.Reset(bytes.NewReader(src)); err != nil {
			return nil, fmt.Errorf("%w: gzip: %w", ErrCorrupt, err)
		}
		return readBounded(dst, r, codec, max)
	case Snappy:
		return decompressSnappy(dst, src, max)
	case LZ4:
		r := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(r)
		r.Reset(bytes.NewReader(src))
		return readBounded(dst, r, codec, max)
	case Zstd:
		return decompressZstd(dst, src, max)
	}
	return nil, fmt.Errorf("%w: %v", ErrInvalid, codec)
}

// readBounded appends all of r to dst, as long as that is at most max bytes.
func readBounded(dst []byte, r io.Reader, codec Codec, max int) ([]byte, error) {
	start := len(dst)
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst)-start > max {
			return nil, fmt.Errorf("%w of %d bytes", ErrTooLarge, max)
		}
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %v: %w", ErrCorrupt, codec, err)
		}
	}
}

// zstdGuess is the room first made for a frame that does not tell its size, as a multiple of the compressed bytes.
const zstdGuess = 4

// zstdBlock is the most that one block of a frame decodes to. It takes at least 4 bytes, which bounds what a frame can claim.
const (
	zstdBlock = 128 << 10
	zstdRatio = zstdBlock / 4
)

// decompressZstd decodes in one go, into room that it makes itself: a streaming decoder would allocate the window that a frame claims.
func decompressZstd(dst, src []byte, most int) ([]byte, error) {
	d := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(d)
	room := max(zstdGuess*len(src), 2*zstdBlock)
	var header zstd.Header
	if err := header.Decode(src); err == nil && header.HasFCS {
		if header.FrameContentSize > uint64(most) {
			return nil, fmt.Errorf("%w of %d bytes", ErrTooLarge, most)
		}
		room = min(int(header.FrameContentSize), zstdRatio*len(src))
	}
	for room = max(room, cap(dst)-len(dst)); ; room *= zstdGuess {
		room = min(room, most)
		dst = slices.Grow(dst, room)
		out, err := d.DecodeAll(src, dst[:len(dst):len(dst)+room])
		switch {
		case err == nil:
			return out, nil
		case !lacksRoom(err):
			return nil, fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
		case room >= most:
			return nil, fmt.Errorf("%w of %d bytes", ErrTooLarge, most)
		}
	}
}

// lacksRoom tells whether decoding failed because there was too little room. The decoder has no error of its own for a block that does not
// fit; TestAZstdWindowCostsNoMoreThanItsData notices when its words change.
func lacksRoom(err error) bool {
	return errors.Is(err, zstd.ErrDecoderSizeExceeded) || strings.Contains(err.Error(), "output bigger than max block size")
}

// xerialMagic begins the framing of the Java snappy library: magic, version int32, compatible version int32, then chunks of an
// int32 length and a raw snappy block. Other clients send one raw block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

func decompressSnappy(dst, src []byte, max int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return appendSnappyBlock(dst, src, max)
	}
	if len(src) < xerialHeader {
		return nil, fmt.Errorf("%w: snappy: framing header of %d bytes", ErrCorrupt, len(src))
	}
	start := len(dst)
	for src = src[xerialHeader:]; len(src) > 0; {
		if len(src) < 4 {
			return nil, fmt.Errorf("%w: snappy: chunk length cut short", ErrCorrupt)
		}
		size := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(size) > uint64(len(src)) {
			return nil, fmt.Errorf("%w: snappy: chunk of %d bytes in %d bytes", ErrCorrupt, size, len(src))
		}
		var err error
		if dst, err = appendSnappyBlock(dst, src[:size], max-(len(dst)-start)); err != nil {
			return nil, err
		}
		src = src[size:]
	}
	return dst, nil
}

// snappyBlockRatio bounds what a raw block can claim: the format's densest element turns 3 bytes into 64.
const snappyBlockRatio = 64

func appendSnappyBlock(dst, block []byte, max int) ([]byte, error) {
	size, err := snappy.DecodedLen(block)
	if err != nil {
		return nil, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	if size > max {
		return nil, fmt.Errorf("%w of %d bytes", ErrTooLarge, max)
	}
	if size > len(block)*snappyBlockRatio {
		return nil, fmt.Errorf("%w: snappy: block of %d bytes claims %d", ErrCorrupt, len(block), size)
	}
	start := len(dst)
	dst = append(dst, make([]byte, size)...)
	if _, err := snappy.Decode(dst[start:], block); err != nil {
		return nil, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	return dst, nil
}
