package engine

import (
	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/segment"
)

// streamPack is what a pack has of one stream.
type streamPack struct {
	stream    *Stream
	from      int64       // what the stream has below is packed already
	pieces    []packPiece // one for each segment that has the stream, in order
	bytes     int64
	end       int64 // offset after its last record
	adopt     bool  // what it has in stored segments is adopted, all of it; else copied
	producers []layer.ProducerState
}

// packPiece is what one segment has of one stream. Index entries end only where pieces do: a recoverer that takes the segments one by one then
// meets no entry that it could take in part only.
type packPiece struct {
	segment *wal.Segment
	entries []segment.Entry
	bytes   int64
}

// add adds an entry of a segment.
func (sp *streamPack) add(entry segment.Entry, s *wal.Segment) {
	if n := len(sp.pieces); n == 0 || sp.pieces[n-1].segment != s {
		sp.pieces = append(sp.pieces, packPiece{segment: s})
	}
	piece := &sp.pieces[len(sp.pieces)-1]
	piece.entries = append(piece.entries, entry)
	piece.bytes += int64(len(entry.Data))
	sp.bytes += int64(len(entry.Data))
	sp.end = entry.Last + 1
}

// packedTo moves the packed end, drops what lies below it from the log cache, and wakes who waits for it.
func (s *Stream) packedTo(sp *streamPack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == closed || sp.end <= s.packed {
		return
	}
	n := 0
	for n < len(s.tail) && s.tail[n].last < sp.end {
		n++
	}
	s.tail = append([]tailBatch(nil), s.tail[n:]...) // a new array: the old one would keep the batches
	s.packed = sp.end
	s.packedProducersDone(sp)
	s.wake()
}

// packedProducers gives the rows of the producers that have batches in the pack, as of its end.
func (s *Stream) packedProducers(sp *streamPack) []layer.ProducerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make(map[int64]*layer.ProducerState)
	var order []int64
	for _, piece := range sp.pieces {
		for _, entry := range piece.entries {
			id := entry.Producer.ID
			if id == segment.NoProducer {
				continue
			}
			state := states[id]
			if state == nil {
				p := s.producers[id]
				if p == nil || p.committed == nil {
					continue // the stream was forgotten in the meantime
				}
				copied := *p.committed
				copied.LastTimestamp = p.lastTimestamp
				state = &copied
				states[id] = state
				order = append(order, id)
			}
			state.Epoch, state.Batches = addBatch(state.Epoch, state.Batches, entry)
		}
	}
	rows := make([]layer.ProducerState, len(order))
	for i, id := range order {
		rows[i] = *states[id]
	}
	return rows
}

// packedProducersDone notes that the rows are committed. Call with mu held.
func (s *Stream) packedProducersDone(sp *streamPack) {
	for i := range sp.producers {
		state := &sp.producers[i]
		p := s.producers[state.Producer]
		if p == nil {
			continue
		}
		p.stored = true
		p.committed = state
		if p.last().Last < sp.end {
			p.committed = nil
		}
	}
}
