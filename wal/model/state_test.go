package model

// maxSegments is how many segments the writer may write. One number more can be sealed.
const maxSegments = 3

// What stands at a key of the store.
const (
	absent = iota
	segment
	seal
)

// How far the writer is with a segment. Its bytes are fixed from the beginning. A segment that is durable is acknowledged with the step that
// makes it so, or when those before it are: to wait longer could only hide a loss.
const (
	cut     = iota // nothing is known to be durable
	put            // a put was answered, or the own bytes were read back, and is to be verified
	durable        // and an earlier one is not
	acked          // acknowledged
	refused        // a put was refused, and what is there was not yet read
	unput          // only when verification comes too early: verified, and not yet put
)

// Where a recoverer is.
const (
	idle     = iota
	starting // it has confirmed the fence
	ahead    // it seals ahead
	look     // it looks for an inline row of its number
	probe    // it puts a seal there, or reads, in mode layer
	read     // its seal was refused
	take     // it has seen a segment
	end      // it has seen the end
	finished
)

// state of everything. It is packed for the set of states that were seen.
type state struct {
	object     [maxSegments + 1]uint8 // by number, from 0
	lateSeal   [maxSegments + 1]bool  // a seal was sent and may land at any time
	inline     [maxSegments]bool      // rows
	phase      [maxSegments]uint8
	latePut    [maxSegments]bool // a put was sent and may land at any time, unheard
	lateCommit [maxSegments]bool // likewise an inline commit
	stopped    bool              // the writer knows that it is fenced, or is dead
	fenced     bool              // or replaced by a newer registration
	firstLive  uint8             // number, from 0
	sealed     uint8             // number + 1; 0: not sealed
	recoverer  [2]struct{ pc, k uint8 }
}

// packer writes and reads bit fields.
type packer struct {
	v uint64
	n uint
}

func (p *packer) put(x uint64, bits uint) {
	p.v |= x << p.n
	p.n += bits
}

func (p *packer) flag(b bool) {
	if b {
		p.v |= 1 << p.n
	}
	p.n++
}

func (p *packer) get(bits uint) uint8 {
	x := p.v & (1<<bits - 1)
	p.v >>= bits
	return uint8(x)
}

func (p *packer) isSet() bool { return p.get(1) == 1 }

// settle forgets what can have no effect any more, so that states which differ in nothing else are one.
func (s *state) settle(commitsAreChecked, sealsStay bool) {
	for k := range s.phase {
		if s.stopped && s.phase[k] != acked {
			s.phase[k] = cut
		}
		if s.fenced && commitsAreChecked {
			s.lateCommit[k] = false
		}
		if s.object[k] == seal && sealsStay {
			s.latePut[k] = false
		}
		if uint8(k) < s.firstLive {
			s.inline[k] = false // a recoverer that still looks for it will be too late
		}
	}
	for k := range s.lateSeal {
		if s.object[k] == seal && sealsStay {
			s.lateSeal[k] = false
		}
	}
	if s.sealed == 0 {
		return
	}
	for i := range s.recoverer {
		if r := &s.recoverer[i]; r.pc == idle || r.pc == starting {
			r.pc, r.k = finished, 0
		}
	}
}

func (s *state) pack() uint64 {
	a, b := s.recoverer[0], s.recoverer[1]
	if a.pc > b.pc || (a.pc == b.pc && a.k > b.k) {
		a, b = b, a // which is which does not matter
	}
	var p packer
	for k := range s.object {
		p.put(uint64(s.object[k]), 2)
		p.flag(s.lateSeal[k])
	}
	for k := range s.inline {
		p.flag(s.inline[k])
		p.put(uint64(s.phase[k]), 3)
		p.flag(s.latePut[k])
		p.flag(s.lateCommit[k])
	}
	p.flag(s.stopped)
	p.flag(s.fenced)
	p.put(uint64(s.firstLive), 2)
	p.put(uint64(s.sealed), 3)
	p.put(uint64(a.pc), 4)
	p.put(uint64(a.k), 2)
	p.put(uint64(b.pc), 4)
	p.put(uint64(b.k), 2)
	return p.v
}

func unpack(v uint64) (s state) {
	p := packer{v: v}
	for k := range s.object {
		s.object[k] = p.get(2)
		s.lateSeal[k] = p.isSet()
	}
	for k := range s.inline {
		s.inline[k] = p.isSet()
		s.phase[k] = p.get(3)
		s.latePut[k], s.lateCommit[k] = p.isSet(), p.isSet()
	}
	s.stopped, s.fenced = p.isSet(), p.isSet()
	s.firstLive, s.sealed = p.get(2), p.get(3)
	for i := range s.recoverer {
		s.recoverer[i].pc, s.recoverer[i].k = p.get(4), p.get(2)
	}
	return s
}
