package layer

import (
	"cmp"
	"slices"
)

// advancePart is what one transaction of an advance does.
type advancePart struct {
	streams []streamPart
	settle  []string // objects of which no later part has entries: they need not be prepared any more
	last    bool     // moves the first live number
}

// streamPart is a stream's share of one part. Producer states are in the same part as the first entries or in an earlier one: a crash
// between parts then leaves states that are ahead of the index, which whoever goes on brings up to them, and never entries whose producer is not known.
type streamPart struct {
	stream    int64
	end       int64 // of the stream's last entry in all parts
	entries   []ObjectEntry
	producers []ProducerState
}

// weights estimate what reads and writes add to a transaction with its conflict ranges, bytes. Keys have a prefix in common.
type weights struct{ prefix int }

func (w weights) read(key int) int         { return 2*(w.prefix+key) + 40 }
func (w weights) write(key, value int) int { return 3*(w.prefix+key) + value + 80 }
func (w weights) stream() int              { return 3 * w.read(24) }
func (w weights) producer() int            { return w.read(30) + w.write(30, 120) }
func (w weights) entry(object int) int     { return w.write(24, object+60) }
func (w weights) object(name int) int {
	return 2*w.read(16+name) + w.write(16+name, name+200) + w.write(16+name, 0)
}
func (w weights) segment(name int) int { return w.write(40, name+100) }

// splitter cuts work into parts.
type splitter struct {
	weights
	limit   int
	parts   []advancePart
	size    int             // of the last part
	objects map[string]bool // of the last part
}

// room makes sure that the last part has room for some bytes more, unless it is empty, and tells whether it is a new one.
func (s *splitter) room(bytes int) (fresh bool) {
	if len(s.parts) > 0 && (s.size == 0 || s.size+bytes <= s.limit) {
		return false
	}
	s.parts = append(s.parts, advancePart{})
	s.size, s.objects = 0, map[string]bool{}
	return true
}

// add puts a piece of a stream's work into the last part.
func (s *splitter) add(p streamPart) {
	cost := func() (bytes int) {
		for _, e := range p.entries {
			bytes += s.entry(len(e.Object))
			if !s.objects[e.Object] {
				bytes += s.object(len(e.Object))
			}
		}
		return bytes + len(p.producers)*s.producer()
	}
	s.room(cost() + s.stream())
	current := &s.parts[len(s.parts)-1]
	s.size += cost()
	for _, e := range p.entries {
		s.objects[e.Object] = true
	}
	if n := len(current.streams); n > 0 && current.streams[n-1].stream == p.stream {
		tail := &current.streams[n-1]
		tail.entries = append(tail.entries, p.entries...)
		tail.producers = append(tail.producers, p.producers...)
		return
	}
	s.size += s.stream()
	current.streams = append(current.streams, p)
}

// settle puts the end of each object's being prepared where its last entry is, or at the end.
func (s *splitter) settle(objects []ObjectMeta) {
	last := map[string]int{}
	for i, part := range s.parts {
		for _, p := range part.streams {
			for _, e := range p.entries {
				last[e.Object] = i
			}
		}
	}
	for _, o := range objects {
		i, ok := last[o.Object]
		if !ok {
			bytes := s.object(len(o.Object)) + s.segment(len(o.Object))
			s.room(bytes)
			s.size += bytes
			i = len(s.parts) - 1
		}
		s.parts[i].settle = append(s.parts[i].settle, o.Object)
	}
}

// split cuts the work into parts of about limit bytes, at least one, for keys with a prefix of so many bytes. Entries of a stream stay in order.
func (a advance) split(limit, prefix int) []advancePart {
	s := splitter{weights: weights{prefix: prefix}, limit: limit}
	s.room(0)
	for _, p := range a.byStream() {
		for i := range p.producers {
			s.add(streamPart{stream: p.stream, end: p.end, producers: p.producers[i : i+1 : i+1]})
		}
		for i := range p.entries {
			s.add(streamPart{stream: p.stream, end: p.end, entries: p.entries[i : i+1 : i+1]})
		}
	}
	s.settle(a.objects)
	passed := 0
	for _, segment := range a.segments {
		passed += s.segment(len(segment))
	}
	s.room(passed)
	s.parts[len(s.parts)-1].last = true
	return s.parts
}

// byStream groups the work by stream, in the order of ids, entries in the order of offsets.
func (a advance) byStream() []streamPart {
	byID := map[int64]*streamPart{}
	var ids []int64
	for _, e := range a.entries {
		p := byID[e.Stream]
		if p == nil {
			p = &streamPart{stream: e.Stream}
			byID[e.Stream] = p
			ids = append(ids, e.Stream)
		}
		p.entries = append(p.entries, e)
		p.end = max(p.end, e.End)
	}
	for _, state := range a.producers {
		byID[state.Stream].producers = append(byID[state.Stream].producers, state)
	}
	slices.Sort(ids)
	out := make([]streamPart, len(ids))
	for i, id := range ids {
		p := byID[id]
		slices.SortFunc(p.entries, func(x, y ObjectEntry) int {
			return cmp.Or(cmp.Compare(x.End, y.End), cmp.Compare(x.Base, y.Base))
		})
		out[i] = *p
	}
	return out
}
