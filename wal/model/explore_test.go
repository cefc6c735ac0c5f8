package model

import (
	"fmt"
	"strings"
	"testing"
)

// seen is the set of states in the order in which they were met, each with the one that it was met from.
type seen struct {
	states  []uint64
	parents []int32
	table   []int32 // index + 1 in states, open addressing; its length is a power of two
}

func newSeen() *seen { return &seen{table: make([]int32, 1<<16)} }

func slot(v uint64, size int) int {
	v ^= v >> 32
	v *= 0x9e3779b97f4a7c15
	v ^= v >> 29
	return int(v) & (size - 1)
}

// add tells whether the state is new.
func (s *seen) add(v uint64, parent int32) bool {
	if 2*len(s.states) >= len(s.table) {
		s.grow()
	}
	at := slot(v, len(s.table))
	for s.table[at] != 0 {
		if s.states[s.table[at]-1] == v {
			return false
		}
		at = (at + 1) & (len(s.table) - 1)
	}
	s.states = append(s.states, v)
	s.parents = append(s.parents, parent)
	s.table[at] = int32(len(s.states))
	return true
}

func (s *seen) grow() {
	table := make([]int32, 2*len(s.table))
	for i, v := range s.states {
		at := slot(v, len(table))
		for table[at] != 0 {
			at = (at + 1) & (len(table) - 1)
		}
		table[at] = int32(i + 1)
	}
	s.table = table
}

// result of an exploration.
type result struct {
	states    int
	violation string
	trace     []string // the shortest way to it
	// ends: the log was sealed at each of these numbers in some state, so that the model is known to get somewhere.
	ends map[int]int
	// reached: how many states have everything acknowledged.
	acknowledged int
}

// explore visits every state that can be reached, nearest first, until one breaks a promise.
func explore(mode int, omit omission, b bounds) result {
	s := newSeen()
	s.add((&state{}).pack(), -1)
	res := result{ends: map[int]int{}}
	e := &explorer{mode: mode, omit: omit, bounds: b}
	for at := int32(0); int(at) < len(s.states) && res.violation == ""; at++ {
		from := unpack(s.states[at])
		res.count(&from, b)
		e.emit = func(next *state, step string, x, y int, violation string) {
			if violation != "" && res.violation == "" {
				res.violation = violation
				res.trace = append(s.trace(at, mode, omit, b), name(step, x, y))
			}
			s.add(next.pack(), at)
		}
		e.successors(from)
	}
	res.states = len(s.states)
	return res
}

// name puts the numbers into a step.
func name(step string, a, b int) string {
	args := []any{a, b}
	return fmt.Sprintf(step, args[:strings.Count(step, "%d")]...)
}

func (r *result) count(s *state, b bounds) {
	if s.sealed != 0 {
		r.ends[int(s.sealed)-1]++
	}
	if s.phase[b.segments-1] == acked {
		r.acknowledged++
	}
}

// trace names the steps that lead to a state.
func (s *seen) trace(at int32, mode int, omit omission, b bounds) []string {
	var back []int32
	for i := at; i >= 0; i = s.parents[i] {
		back = append(back, i)
	}
	var steps []string
	for i := len(back) - 1; i > 0; i-- {
		want := s.states[back[i-1]]
		found := ""
		e := &explorer{mode: mode, omit: omit, bounds: b, emit: func(next *state, step string, x, y int, _ string) {
			if found == "" && next.pack() == want {
				found = name(step, x, y)
			}
		}}
		e.successors(unpack(s.states[back[i]]))
		steps = append(steps, found)
	}
	return steps
}

func (r result) log(t *testing.T) {
	t.Helper()
	t.Logf("%d states: %s\n  %s", r.states, r.violation, strings.Join(r.trace, "\n  "))
}
