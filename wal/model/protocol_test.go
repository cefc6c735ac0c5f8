package model

import "fmt"

// The fence modes.
const (
	both = iota
	store
	layer
)

// omission leaves out one rule of the protocol, or bends it.
type omission int

const (
	nothing omission = iota
	ackOutOfOrder
	sealsMayBeDeleted
	endWithoutCondition
	verifyBeforePut
	inlineWithoutNodeCheck
	noVerify           // in mode layer
	recoverBeforeFence // nothing is confirmed
	refusedMeansOwn    // a refused put is not read back
	takeWithoutCondition
	noInlineLook // a recoverer looks only at the store
	unconditionalSeal
)

// bounds of an exploration.
type bounds struct {
	segments   int
	recoverers int
	late       int // requests of one kind that are on their way at once
}

// explorer gives the successors of a state.
type explorer struct {
	mode   int
	omit   omission
	bounds bounds
	// emit is called with each successor and what the step is called, with numbers for its verbs; violation is not empty when the step broke a promise.
	emit func(s *state, step string, a, b int, violation string)
}

func (e *explorer) seals() bool { return e.mode != layer }

func (e *explorer) to(s *state, step string, a, b int) {
	e.settle(s)
	e.emit(s, step, a, b, e.broken(s))
}

// settle acknowledges what can be, and makes equal what is equal.
func (e *explorer) settle(s *state) {
	for k := range e.bounds.segments {
		if s.phase[k] == durable && (k == 0 || s.phase[k-1] == acked || e.omit == ackOutOfOrder) && !s.stopped {
			s.phase[k] = acked
		}
	}
	s.settle(e.omit != inlineWithoutNodeCheck, e.omit != sealsMayBeDeleted && e.seals())
}

// broken checks the promises in one state.
func (e *explorer) broken(s *state) string {
	if s.sealed == 0 {
		return ""
	}
	if s.sealed-1 != s.firstLive {
		return fmt.Sprintf("the log is sealed at %d, and its first live segment is %d", s.sealed-1, s.firstLive)
	}
	for k := range e.bounds.segments {
		if s.phase[k] == acked && uint8(k) >= s.sealed-1 {
			return fmt.Sprintf("segment %d is acknowledged, and the log ends at %d", k, s.sealed-1)
		}
	}
	return ""
}

// successors emits every step that can happen next.
func (e *explorer) successors(s state) {
	e.network(s)
	if !s.stopped {
		for k := range e.bounds.segments {
			e.writeSegment(s, k)
		}
		e.pack(s)
	}
	if !s.fenced {
		n := s
		n.fenced = true
		e.to(&n, "the node is fenced, or restarts", 0, 0)
	}
	for i := range e.bounds.recoverers {
		e.recover(s, i)
	}
	e.collect(s)
}

func few(late []bool, bound int) bool {
	n := 0
	for _, l := range late {
		if l {
			n++
		}
	}
	return n < bound
}

// network lands what was late. A request whose answer is lost is one that lands late.
func (e *explorer) network(s state) {
	for k := range e.bounds.segments {
		if s.latePut[k] {
			n := s
			n.latePut[k] = false
			e.land(&n, k)
			e.to(&n, "a late put of segment %d arrives", k, 0)
		}
		if s.lateCommit[k] {
			n := s
			n.lateCommit[k] = false
			if e.mayCommit(&s) {
				n.inline[k] = true
			}
			e.to(&n, "a late inline commit of segment %d arrives", k, 0)
		}
	}
	for k := range s.lateSeal {
		if s.lateSeal[k] {
			n := s
			n.lateSeal[k] = false
			if s.object[k] == absent || e.omit == unconditionalSeal {
				n.object[k] = seal
			}
			e.to(&n, "a late seal at %d arrives", k, 0)
		}
	}
}

// land is a put of segment k that the store takes in: true when it was written.
func (e *explorer) land(s *state, k int) bool {
	if e.seals() && s.object[k] != absent {
		return false
	}
	s.object[k] = segment
	return true
}

func (e *explorer) mayCommit(s *state) bool { return !s.fenced || e.omit == inlineWithoutNodeCheck }

// writeSegment is what the writer may do with segment k.
func (e *explorer) writeSegment(s state, k int) {
	n := s
	switch s.phase[k] {
	case cut:
		e.writeInline(s, k)
		if e.omit != verifyBeforePut || e.mode == store {
			e.writePut(s, k, put)
		} else if !s.fenced {
			n.phase[k] = unput
			e.to(&n, "the node row is read before segment %d is put", k, 0)
		}
	case unput:
		e.writePut(s, k, durable)
	case refused:
		switch {
		case s.object[k] == segment || e.omit == refusedMeansOwn:
			n.phase[k] = put
		case s.object[k] == seal:
			n.stopped = true
		default:
			n.phase[k] = cut
		}
		e.to(&n, "the writer reads back what is at %d", k, 0)
	case put:
		e.verify(s, k)
	}
}

// writePut is one attempt at the store. An answer that comes later than its effect is a verification that comes later.
func (e *explorer) writePut(s state, k int, answered uint8) {
	n := s
	if e.land(&n, k) {
		n.phase[k] = answered
		e.to(&n, "segment %d is put", k, 0)
	} else {
		n.phase[k] = refused
		e.to(&n, "a put of segment %d is refused", k, 0)
	}
	if few(s.latePut[:], e.bounds.late) && !s.latePut[k] {
		n := s
		n.latePut[k] = true
		e.to(&n, "a put of segment %d is delayed", k, 0)
	}
}

// writeInline is one attempt at the layer.
func (e *explorer) writeInline(s state, k int) {
	n := s
	if e.mayCommit(&s) {
		n.inline[k] = true
		n.phase[k] = durable
		e.to(&n, "segment %d is committed inline", k, 0)
	} else {
		n.stopped = true
		e.to(&n, "the inline commit of segment %d is refused", k, 0)
	}
	if few(s.lateCommit[:], e.bounds.late) && !s.lateCommit[k] {
		n := s
		n.lateCommit[k] = true
		e.to(&n, "an inline commit of segment %d is delayed", k, 0)
	}
}

// verify is the read after the put. In mode both the writer may be cut off from the layer at any time, and goes on without it.
func (e *explorer) verify(s state, k int) {
	n := s
	n.phase[k] = durable
	switch {
	case e.mode == store:
		e.to(&n, "segment %d counts by its conditional put", k, 0)
		return
	case e.omit == noVerify || e.omit == verifyBeforePut:
		e.to(&n, "segment %d is not verified after its put", k, 0)
		return
	case !s.fenced:
		e.to(&n, "segment %d is verified", k, 0)
		return
	case e.mode == both:
		e.to(&n, "the writer, cut off, skips the read for segment %d", k, 0)
	}
	n = s
	n.stopped = true
	e.to(&n, "the read after the put of segment %d sees the fence", k, 0)
}

// pack is the node moving its first live number over an acknowledged segment.
func (e *explorer) pack(s state) {
	k := int(s.firstLive)
	if s.fenced || k >= e.bounds.segments || s.phase[k] != acked {
		return
	}
	n := s
	n.firstLive++
	n.inline[k] = false
	e.to(&n, "segment %d is packed", k, 0)
}

// recover is the next step of recoverer i.
func (e *explorer) recover(s state, i int) {
	n := s
	r := &n.recoverer[i]
	k := r.k
	switch r.pc {
	case idle:
		if s.fenced || e.omit == recoverBeforeFence {
			r.pc = starting
			e.to(&n, "recoverer %d begins", i, 0)
		}
	case starting:
		e.recoverStart(n, i)
	case ahead:
		e.recoverAhead(n, i)
	case look:
		r.pc = probe
		if int(k) < e.bounds.segments && s.inline[k] && e.omit != noInlineLook {
			r.pc = take
		}
		e.to(&n, "recoverer %d looks for an inline segment %d", i, int(k))
	case probe:
		e.recoverProbe(n, i)
	case read:
		switch {
		case s.object[k] == segment:
			r.pc = take
		case s.object[k] == seal:
			r.pc = end
		default:
			r.pc = starting
		}
		e.to(&n, "recoverer %d reads what is at %d", i, int(k))
	case take:
		e.recoverTake(n, i)
	case end:
		if s.sealed == 0 && (s.firstLive == k || e.omit == endWithoutCondition) {
			n.sealed = k + 1
			r.pc, r.k = finished, 0
		} else {
			r.pc = starting
		}
		e.to(&n, "recoverer %d ends the log at %d", i, int(k))
	}
}

// recoverStart reads the row.
func (e *explorer) recoverStart(n state, i int) {
	r := &n.recoverer[i]
	switch {
	case n.sealed != 0:
		r.pc, r.k = finished, 0
	case e.seals():
		r.pc, r.k = ahead, n.firstLive
	default:
		r.pc, r.k = look, n.firstLive
	}
	e.to(&n, "recoverer %d reads the row: first live is %d", i, int(n.firstLive))
}

// recoverAhead puts a seal at some number, or finds them all taken.
func (e *explorer) recoverAhead(s state, i int) {
	for j := int(s.recoverer[i].k); j <= e.bounds.segments; j++ {
		if s.object[j] != absent {
			continue
		}
		n := s
		n.object[j] = seal
		n.recoverer[i].pc = look
		e.to(&n, "recoverer %d seals ahead at %d", i, j)
	}
	n := s
	n.recoverer[i].pc = look
	e.to(&n, "recoverer %d does not seal ahead", i, 0)
}

// recoverProbe puts a seal at the number, or, in mode layer, reads it.
func (e *explorer) recoverProbe(s state, i int) {
	n := s
	r := &n.recoverer[i]
	k := r.k
	if !e.seals() {
		r.pc = end
		if s.object[k] == segment {
			r.pc = take
		}
		e.to(&n, "recoverer %d reads what is at %d", i, int(k))
		return
	}
	r.pc = read
	if s.object[k] == absent || e.omit == unconditionalSeal {
		n.object[k] = seal
		r.pc = end
	}
	e.to(&n, "recoverer %d puts a seal at %d", i, int(k))
	if few(s.lateSeal[:], e.bounds.late) && !s.lateSeal[k] {
		n := s
		n.lateSeal[k] = true
		e.to(&n, "a seal of recoverer %d at %d is delayed", i, int(k))
	}
}

// recoverTake adopts a segment.
func (e *explorer) recoverTake(n state, i int) {
	r := &n.recoverer[i]
	k := r.k
	if n.sealed != 0 || (n.firstLive != k && e.omit != takeWithoutCondition) {
		r.pc = starting
		e.to(&n, "recoverer %d takes %d too late", i, int(k))
		return
	}
	violation := ""
	switch {
	case n.firstLive > k:
		violation = fmt.Sprintf("segment %d is adopted twice", k)
	case !n.inline[k] && n.object[k] != segment:
		violation = fmt.Sprintf("segment %d is adopted and is nowhere", k)
	}
	n.firstLive = k + 1
	n.inline[k] = false
	r.pc, r.k = look, k+1
	if int(k+1) > e.bounds.segments {
		r.pc, r.k = finished, 0 // not reached: the writer has no more segments
	}
	e.settle(&n)
	if violation == "" {
		violation = e.broken(&n)
	}
	e.emit(&n, "recoverer %d takes %d", i, int(k), violation)
}

// collect is the collection of garbage: objects that were replaced, and what a log that has ended leaves behind.
func (e *explorer) collect(s state) {
	for k := range s.object {
		replaced := s.object[k] == segment && uint8(k) < s.firstLive
		swept := s.sealed != 0 && s.object[k] == segment && uint8(k)+1 >= s.sealed
		if replaced || swept || (s.sealed != 0 && s.object[k] == seal && e.omit == sealsMayBeDeleted) {
			n := s
			n.object[k] = absent
			e.to(&n, "the object at %d is deleted", k, 0)
		}
	}
}
