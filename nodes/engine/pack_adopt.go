package engine

import (
	"slices"
	"sort"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/segment"
)

// Adopting makes index entries that point into a segment where it lies, as a recoverer does, in place of copying its bytes into a data object. It
// costs one index entry for each piece, and keeps the whole segment for as long as one of them lives.
//
// What a stream has in the stored segments of a pack is adopted as a whole or copied as a whole: copies with adopted pieces between them would be as
// many entries as the pieces.
const (
	// freeAdoptions is how many pieces are adopted for a stream that closes, however small they are: the transaction or two that it takes are no wait.
	freeAdoptions = 1000
	// hurriedAdoptBytes is what the pieces of a stream must have on average beyond that: below it, to write their bytes again takes less time than their index entries.
	hurriedAdoptBytes = 8 << 10
)

// adoptedSegment is a segment that index entries will point into, and the parts that they point to.
type adoptedSegment struct {
	segment *wal.Segment
	parts   []segment.Part
}

// storedPieces counts pieces in stored segments.
type storedPieces struct {
	pieces int
	bytes  int64
}

// hurriedBytes is the least average size at which that many pieces are adopted while a stream waits to be closed.
func hurriedBytes(pieces int) int64 {
	if pieces <= freeAdoptions {
		return 0
	}
	return hurriedAdoptBytes
}

// decide says of each stream whether what it has in stored segments is adopted. In a hurry, somebody waits until a stream is closed, and there is as little
// to be written as possible; otherwise a stream's pieces must be large enough to be as good as a data object, and at least half of what is kept for them.
func (p *packPlan) decide(o Options) {
	least := o.PackAdoptBytes
	if p.hurried {
		least = min(least, hurriedBytes(p.stored().pieces))
	}
	for _, sp := range p.streams {
		has := sp.stored()
		sp.adopt = has.pieces > 0 && has.bytes >= least*int64(has.pieces)
	}
	if p.hurried {
		return
	}
	if adopted, kept := p.kept(); adopted < kept/2 {
		for _, sp := range p.streams {
			sp.adopt = false
		}
	}
}

// stored counts what all streams have in stored segments.
func (p *packPlan) stored() (all storedPieces) {
	for _, sp := range p.streams {
		has := sp.stored()
		all.pieces += has.pieces
		all.bytes += has.bytes
	}
	return all
}

// kept gives the bytes of adopted pieces, and those of the segments that are kept for them.
func (p *packPlan) kept() (adopted, kept int64) {
	segments := make(map[*wal.Segment]struct{})
	for _, sp := range p.streams {
		for i := range sp.pieces {
			if piece := &sp.pieces[i]; sp.adopts(piece) {
				adopted += piece.bytes
				segments[piece.segment] = struct{}{}
			}
		}
	}
	for s := range segments {
		kept += s.Bytes
	}
	return adopted, kept
}

// adopt makes the index entries of what is adopted.
func (p *packPlan) adopt() {
	at := make(map[*wal.Segment]int)
	for _, sp := range p.streams {
		for i := range sp.pieces {
			piece := &sp.pieces[i]
			if !sp.adopts(piece) {
				continue
			}
			n, known := at[piece.segment]
			if !known {
				n = len(p.adopted)
				at[piece.segment] = n
				p.adopted = append(p.adopted, adoptedSegment{segment: piece.segment})
			}
			part, _ := piece.part()
			p.adopted[n].parts = append(p.adopted[n].parts, part)
			p.entries = append(p.entries, wal.ObjectEntries(piece.segment.Key, []segment.Part{part})...)
			p.adoptedBytes += piece.bytes
		}
	}
}

// metas are the rows of the adopted segments.
func (p *packPlan) metas() []layer.ObjectMeta {
	metas := make([]layer.ObjectMeta, len(p.adopted))
	for i, a := range p.adopted {
		metas[i] = layer.ObjectMeta{Object: a.segment.Key, Size: a.segment.Bytes, Kind: layer.AdoptedSegment}
	}
	return metas
}

// stored counts what the stream has in stored segments.
func (sp *streamPack) stored() (has storedPieces) {
	for i := range sp.pieces {
		if _, ok := sp.pieces[i].part(); ok {
			has.pieces++
			has.bytes += sp.pieces[i].bytes
		}
	}
	return has
}

// copied is how many bytes of the stream go into data objects.
func (sp *streamPack) copied() (bytes int64) {
	for i := range sp.pieces {
		if piece := &sp.pieces[i]; !sp.adopts(piece) {
			bytes += piece.bytes
		}
	}
	return bytes
}

// adopts tells whether a piece is adopted.
func (sp *streamPack) adopts(piece *packPiece) bool {
	_, ok := piece.part()
	return ok && sp.adopt
}

// part finds what a stored segment has of a stream. An inline segment has none, even where an object of its key was tried: it may never have landed.
// Nor has one whose part is not exactly the piece.
func (p *packPiece) part() (segment.Part, bool) {
	if p.segment.Inline {
		return segment.Part{}, false
	}
	first, end, parts := &p.entries[0], p.entries[len(p.entries)-1].Last+1, p.segment.Parts
	at := sort.Search(len(parts), func(i int) bool { return parts[i].Stream >= first.Stream })
	for ; at < len(parts) && parts[at].Stream == first.Stream; at++ {
		if part := parts[at]; part.Epoch == first.Epoch && part.Base == first.Base && part.End == end && part.Len == p.bytes {
			return part, true
		}
	}
	return segment.Part{}, false
}

// cacheAdopted puts what is adopted into the block cache, as the blocks of data objects are when they are written: whoever read it from the log cache will
// read it there. Equal entries make equal bytes, so that they need not be read from the store. Streams that close are read elsewhere.
func (e *Engine) cacheAdopted(p *packPlan) {
	for _, a := range p.adopted {
		if !slices.ContainsFunc(a.parts, func(part segment.Part) bool {
			s := e.stream(part.Stream)
			return s != nil && s.isServing()
		}) {
			continue
		}
		body, parts := a.segment.Encode()
		if int64(len(body)) != a.segment.Bytes || !slices.Equal(parts, a.segment.Parts) {
			// What was acknowledged is in the store; readers get it from there.
			e.logger.Error("a segment is not the same when it is encoded again", "object", a.segment.Key, "bytes", a.segment.Bytes, "again", len(body))
			continue
		}
		for _, part := range a.parts {
			if err := e.cachePart(a.segment.Key, body, part, forPack); err != nil {
				e.logger.Error("an adopted part is not cached", "object", a.segment.Key, "stream", part.Stream, "error", err)
			}
		}
	}
}

// small tells whether an index entry is small, so that it is merged with its neighbours. Pieces that were adopted because they are large, give or take what
// they vary about their average, are not written again.
func (e *Engine) small(entry layer.ObjectEntry) bool {
	below := e.options.MergeBelowBytes
	if wal.IsSegmentKey(e.cluster, entry.Object) {
		below = min(below, e.options.PackAdoptBytes/2)
	}
	return entry.Len < below
}
