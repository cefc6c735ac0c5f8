package embedded

import (
	"bytes"
	"slices"
	"strings"

	"github.com/varvedb/varve/layer/kv"
)

// ownWrites is what a transaction has written so far, as its own reads must see it.
type ownWrites struct {
	entries map[string]*ownEntry
	// sorted are the keys of entries in order, except those in fresh. A key that left entries stays until the next merge.
	sorted []string
	fresh  []string
	// cleared are ranges that hold nothing but entries: disjoint, in order, not adjacent.
	cleared []keyRange
	// hidden are ranges in which the commit may put versionstamped keys.
	hidden []keyRange
}

// ownEntry is the state of one key.
type ownEntry struct {
	known      bool     // value says it all; otherwise adds apply to what the database has
	value      []byte   // nil: cleared
	adds       [][]byte // in order
	unreadable bool     // a versionstamp that is not known yet is in the value
}

// apply gives the value of the key, where stored is what the database has.
func (e *ownEntry) apply(stored []byte) []byte {
	if e.known {
		return e.value
	}
	for _, param := range e.adds {
		stored = add(stored, param)
	}
	return stored
}

func (w *ownWrites) empty() bool {
	return len(w.entries) == 0 && len(w.cleared) == 0 && len(w.hidden) == 0
}

func (w *ownWrites) entry(key []byte) *ownEntry {
	if e, ok := w.entries[string(key)]; ok {
		return e
	}
	if w.entries == nil {
		w.entries = map[string]*ownEntry{}
	}
	e := &ownEntry{known: w.isCleared(key)}
	w.entries[string(key)] = e
	w.fresh = append(w.fresh, string(key))
	return e
}

func (w *ownWrites) set(key, value []byte) {
	*w.entry(key) = ownEntry{known: true, value: value}
}

func (w *ownWrites) clear(key []byte) {
	*w.entry(key) = ownEntry{known: true}
}

func (w *ownWrites) add(key, param []byte) {
	e := w.entry(key)
	switch {
	case e.unreadable:
	case e.known:
		e.value = add(e.value, param)
	default:
		e.adds = append(e.adds, param)
	}
}

func (w *ownWrites) hideValue(key []byte) {
	*w.entry(key) = ownEntry{unreadable: true}
}

// hideKeys makes every key unreadable that a versionstamp from lowest on may complete.
func (w *ownWrites) hideKeys(key []byte, offset int, lowest kv.Versionstamp) {
	begin := fill(key, offset, lowest)
	last := fill(key, offset, kv.Versionstamp(bytes.Repeat([]byte{0xff}, len(lowest))))
	w.hidden = append(w.hidden, keyRange{begin: begin, end: append(last, 0)})
}

func (w *ownWrites) clearRange(rng keyRange) {
	if bytes.Compare(rng.begin, rng.end) >= 0 {
		return
	}
	w.dropEntries(rng)
	// Ranges that overlap or touch rng become one with it.
	from, _ := slices.BinarySearchFunc(w.cleared, rng.begin, func(r keyRange, key []byte) int { return bytes.Compare(r.end, key) })
	to := from
	for to < len(w.cleared) && bytes.Compare(w.cleared[to].begin, rng.end) <= 0 {
		if bytes.Compare(w.cleared[to].begin, rng.begin) < 0 {
			rng.begin = w.cleared[to].begin
		}
		if bytes.Compare(w.cleared[to].end, rng.end) > 0 {
			rng.end = w.cleared[to].end
		}
		to++
	}
	w.cleared = slices.Replace(w.cleared, from, to, rng)
}

func (w *ownWrites) dropEntries(rng keyRange) {
	for _, key := range w.keysIn(rng) {
		delete(w.entries, key)
	}
}

// keysIn are the keys of entries in rng, in order. The slice is good until the next write.
func (w *ownWrites) keysIn(rng keyRange) []string {
	w.mergeFresh()
	from, _ := slices.BinarySearch(w.sorted, string(rng.begin))
	to, _ := slices.BinarySearch(w.sorted, string(rng.end))
	if to < from {
		return nil
	}
	keys := w.sorted[from:to]
	if len(w.entries) == len(w.sorted) {
		return keys
	}
	live := make([]string, 0, len(keys))
	for _, key := range keys {
		if _, ok := w.entries[key]; ok {
			live = append(live, key)
		}
	}
	return live
}

// mergeFresh brings sorted up to date.
func (w *ownWrites) mergeFresh() {
	if len(w.fresh) == 0 {
		return
	}
	slices.Sort(w.fresh)
	merged := make([]string, 0, len(w.sorted)+len(w.fresh))
	old, fresh := w.sorted, w.fresh
	for len(old) > 0 || len(fresh) > 0 {
		var key string
		if len(fresh) == 0 || len(old) > 0 && strings.Compare(old[0], fresh[0]) <= 0 {
			key, old = old[0], old[1:]
		} else {
			key, fresh = fresh[0], fresh[1:]
		}
		_, live := w.entries[key]
		if live && (len(merged) == 0 || merged[len(merged)-1] != key) {
			merged = append(merged, key)
		}
	}
	w.sorted, w.fresh = merged, nil
}

// clearedAround is the index in cleared of the range that holds key or else of the first after it, and whether it holds key.
func (w *ownWrites) clearedAround(key []byte) (int, bool) {
	i, _ := slices.BinarySearchFunc(w.cleared, key, func(r keyRange, key []byte) int {
		if bytes.Compare(r.end, key) <= 0 {
			return -1
		}
		return 1
	})
	return i, i < len(w.cleared) && bytes.Compare(w.cleared[i].begin, key) <= 0
}

func (w *ownWrites) isCleared(key []byte) bool {
	_, ok := w.clearedAround(key)
	return ok
}

// isHidden tells whether the commit may put a versionstamped key at key.
func (w *ownWrites) isHidden(key []byte) bool {
	for _, r := range w.hidden {
		if bytes.Compare(r.begin, key) <= 0 && bytes.Compare(key, r.end) < 0 {
			return true
		}
	}
	return false
}

// readable cuts rng, which is read from its begin (or its end, in reverse), where the first unreadable key is. It tells
// whether it had to.
func (w *ownWrites) readable(rng keyRange, reverse bool) (keyRange, bool) {
	cut := false
	limit := func(hidden keyRange) {
		if bytes.Compare(hidden.begin, rng.end) >= 0 || bytes.Compare(rng.begin, hidden.end) >= 0 {
			return
		}
		cut = true
		if reverse {
			rng.begin = hidden.end
		} else {
			rng.end = hidden.begin
		}
	}
	for _, r := range w.hidden {
		limit(r)
	}
	for _, key := range w.keysIn(rng) {
		if w.entries[key].unreadable {
			limit(pointRange([]byte(key)))
		}
	}
	if bytes.Compare(rng.begin, rng.end) > 0 {
		rng.end = rng.begin
	}
	return rng, cut
}
