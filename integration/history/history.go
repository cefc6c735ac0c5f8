// Package history records what clients of streams saw and checks it against what the streams hold in the end.
package history

import (
	"fmt"
	"sync"
)

// Ack is an append that was acknowledged.
type Ack struct {
	Writer string // who appended
	Number int    // the writer's count of its appends, from 0
	Offset int64
}

// Read is a record that a reader got.
type Read struct {
	Offset int64
	Value  string
}

// Stream is what was seen of one stream. It is safe for use by several goroutines.
type Stream struct {
	Name string

	mu    sync.Mutex
	acks  []Ack
	lost  map[string]bool   // values whose writers gave up on them: they may be there or not
	reads map[string][]Read // by reader, in the order that it got them
}

// New begins a record.
func New(name string) *Stream { return &Stream{Name: name, reads: map[string][]Read{}} }

// Value is the value that a writer appends as its number-th record. A value names its writer, so that it can be told where it belongs.
func Value(writer string, number int) string { return fmt.Sprintf("%s/%d", writer, number) }

// Acknowledged records an acknowledgement.
func (s *Stream) Acknowledged(a Ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acks = append(s.acks, a)
}

// GaveUp records that a writer will never know of an append: it may be there or not.
func (s *Stream) GaveUp(writer string, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = map[string]bool{}
	}
	s.lost[Value(writer, number)] = true
}

// Got records a record that a reader got.
func (s *Stream) Got(reader string, r Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads[reader] = append(s.reads[reader], r)
}

// Acks counts the acknowledgements.
func (s *Stream) Acks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acks)
}

// ReadUpTo is the offset after the last record that a reader got.
func (s *Stream) ReadUpTo(reader string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads := s.reads[reader]
	if len(reads) == 0 {
		return 0
	}
	return reads[len(reads)-1].Offset + 1
}

// Check compares what was seen with the final content of the stream, which is read from offset 0, and returns what is wrong:
//
//   - offsets are consecutive from 0;
//   - no value is there twice, and each writer's values are in the order of its numbers without a gap, but for appends that it gave up on;
//   - every acknowledged append is there, at the offset that was acknowledged;
//   - every reader got records at consecutive offsets, without gap or repeat, and each with the value that is there in the end.
func (s *Stream) Check(final []Read) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &check{name: s.Name, final: final, lost: s.lost}
	c.content()
	for _, a := range s.acks {
		c.acknowledged(a)
	}
	for reader, reads := range s.reads {
		c.reader(reader, reads)
	}
	return c.problems
}

type check struct {
	name     string
	final    []Read
	lost     map[string]bool
	problems []string
}

// maxProblems keeps a report readable.
const maxProblems = 20

func (c *check) wrong(format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, c.name+": "+fmt.Sprintf(format, args...))
	}
}

func (c *check) content() {
	seen := map[string]int64{}
	last := map[string]int{}
	for i, r := range c.final {
		if r.Offset != int64(i) {
			c.wrong("record %d has offset %d", i, r.Offset)
			return
		}
		if at, ok := seen[r.Value]; ok {
			c.wrong("value %q is at offsets %d and %d", r.Value, at, r.Offset)
		}
		seen[r.Value] = r.Offset
		writer, number, err := parse(r.Value)
		if err != nil {
			c.wrong("offset %d: %v", r.Offset, err)
			continue
		}
		expected := 0
		if before, ok := last[writer]; ok {
			expected = before + 1
		}
		for expected < number && c.lost[Value(writer, expected)] {
			expected++
		}
		if number != expected {
			c.wrong("offset %d has number %d of writer %s, expected %d", r.Offset, number, writer, expected)
		}
		last[writer] = number
	}
}

func (c *check) acknowledged(a Ack) {
	want := Value(a.Writer, a.Number)
	switch {
	case a.Offset < 0 || a.Offset >= int64(len(c.final)):
		c.wrong("append %q was acknowledged at offset %d, the stream ends at %d", want, a.Offset, len(c.final))
	case c.final[a.Offset].Value != want:
		c.wrong("append %q was acknowledged at offset %d, where there is %q", want, a.Offset, c.final[a.Offset].Value)
	}
}

func (c *check) reader(reader string, reads []Read) {
	for i, r := range reads {
		switch {
		case r.Offset != int64(i):
			c.wrong("reader %s got offset %d as its record %d", reader, r.Offset, i)
			return
		case r.Offset >= int64(len(c.final)):
			c.wrong("reader %s got %q at offset %d, which has vanished: the stream ends at %d", reader, r.Value, r.Offset, len(c.final))
			return
		case c.final[r.Offset].Value != r.Value:
			c.wrong("reader %s got %q at offset %d, where there is %q", reader, r.Value, r.Offset, c.final[r.Offset].Value)
		}
	}
}

func parse(value string) (writer string, number int, err error) {
	for i := len(value) - 1; i >= 0; i-- {
		if value[i] == '/' {
			_, err = fmt.Sscanf(value[i+1:], "%d", &number)
			return value[:i], number, err
		}
	}
	return "", 0, fmt.Errorf("value %q is no writer's", value)
}
