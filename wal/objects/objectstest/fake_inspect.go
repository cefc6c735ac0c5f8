package objectstest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/varvedb/varve/wal/objects"
)

// Keys lists the keys of all objects, sorted.
func (f *Fake) Keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.keys)
}

// Body is the body of an object as it is stored, and whether there is one. It counts as no call and meets no fault.
func (f *Fake) Body(key string) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, present := f.objects[key]
	return bytes.Clone(found.body), present
}

// Set stores an object behind every fault and condition, as an operator or a stranger would.
func (f *Fake) Set(key string, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.storeLocked(key, body); err != nil {
		panic(fmt.Sprintf("objectstest: Set(%q): %v", key, err))
	}
}

// Remove takes objects away behind every fault: lost data.
func (f *Fake) Remove(keys ...string) {
	for _, key := range keys {
		_ = f.remove(key) // never fails
	}
}

// CorruptAt inverts one byte of a stored object; a negative offset counts from the end.
func (f *Fake) CorruptAt(key string, offset int64) error {
	return f.change(key, func(body []byte) ([]byte, error) {
		at := offset
		if at < 0 {
			at += int64(len(body))
		}
		if at < 0 || at >= int64(len(body)) {
			return nil, fmt.Errorf("%w: offset %d of %d", objects.ErrRange, offset, len(body))
		}
		body[at] ^= 0xff
		return body, nil
	})
}

// Truncate cuts a stored object to its first size bytes.
func (f *Fake) Truncate(key string, size int64) error {
	return f.change(key, func(body []byte) ([]byte, error) {
		if size < 0 || size > int64(len(body)) {
			return nil, fmt.Errorf("%w: size %d of %d", objects.ErrRange, size, len(body))
		}
		return body[:size], nil
	})
}

func (f *Fake) change(key string, edit func([]byte) ([]byte, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, present := f.objects[key]
	if !present {
		return fmt.Errorf("%w: %q", objects.ErrNotFound, key)
	}
	body, err := edit(bytes.Clone(found.body))
	if err != nil {
		return fmt.Errorf("damage %q: %w", key, err)
	}
	found.body = body
	f.objects[key] = found
	return nil
}

// Counter tells what was counted of one operation (objects.OpPut and the others). A Delete of several keys counts as several.
func (f *Fake) Counter(op string) Counter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counters[op]
}

// Calls counts the calls of all operations.
func (f *Fake) Calls() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var calls int64
	for _, c := range f.counters {
		calls += c.Calls
	}
	return calls
}

// ResetCounters begins all counters at zero.
func (f *Fake) ResetCounters() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.counters)
}

// lateWrite is a write or a delete that was answered with an error and has yet to take effect.
type lateWrite struct {
	op, key string
	body    []byte
}

func (f *Fake) landLater(w lateWrite) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = append(f.late, w)
}

// Late counts the writes and deletes that failed by Rates.Late and have not landed.
func (f *Fake) Late() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.late)
}

// LandLate lets all late writes and deletes take effect now, in the order in which they were sent; conditions are checked now. It tells
// how many took effect.
func (f *Fake) LandLate() int {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	landed := 0
	for _, w := range late {
		if f.land(w) == nil {
			landed++
		}
	}
	return landed
}

func (f *Fake) land(w lateWrite) error {
	switch w.op {
	case objects.OpPut:
		return f.put(w.key, w.body)
	case objects.OpPutIfAbsent:
		return f.putIfAbsent(w.key, w.body)
	default:
		return f.remove(w.key)
	}
}
