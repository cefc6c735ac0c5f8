package embedded

import (
	"bytes"
	"math/rand/v2"
	"time"
)

// keyRange is the keys with begin <= key < end.
type keyRange struct {
	begin, end []byte
}

// pointRange holds key alone. Begin and end share memory of their own.
func pointRange(key []byte) keyRange {
	end := make([]byte, len(key)+1)
	copy(end, key)
	return keyRange{begin: end[:len(key):len(key)], end: end}
}

// resolver knows, for every key, the version of the last commit that wrote it, as far back as floor. It belongs to the
// sequencer goroutine.
//
// The versions are a step function over the keys: a boundary says from which key on a version holds, up to the next boundary. Boundaries
// are a treap that carries the greatest version below each node, so a check costs O(log n) however wide the range is. Writes also queue up in
// commit order, by which they are forgotten again: then boundaries between two forgotten stretches disappear.
type resolver struct {
	root   *boundary
	count  int       // boundaries
	writes writeFIFO // not yet forgotten
	floor  int64     // versions up to here are forgotten: reads at older versions cannot be checked
	last   int64     // the newest version
}

type boundary struct {
	key         []byte
	version     int64
	newest      int64 // the greatest version in this subtree
	priority    uint32
	left, right *boundary
}

func newResolver(version int64) *resolver {
	return &resolver{floor: version, last: version}
}

// changed tells whether a commit after version since wrote into r.
func (r *resolver) changed(rng keyRange, since int64) bool {
	if since >= r.last || bytes.Compare(rng.begin, rng.end) >= 0 {
		return false
	}
	return r.versionAt(rng.begin) > since || newerWithin(r.root, rng, since)
}

// versionAt is the version that holds at key.
func (r *resolver) versionAt(key []byte) int64 {
	var version int64
	for n := r.root; n != nil; {
		if bytes.Compare(n.key, key) <= 0 {
			version = n.version
			n = n.right
		} else {
			n = n.left
		}
	}
	return version
}

// newerWithin looks for a boundary strictly between begin and end with a version after since.
func newerWithin(n *boundary, rng keyRange, since int64) bool {
	for n != nil && n.newest > since {
		if bytes.Compare(n.key, rng.begin) <= 0 {
			n = n.right
			continue
		}
		if bytes.Compare(n.key, rng.end) >= 0 {
			n = n.left
			continue
		}
		if n.version > since || newerWithin(n.left, rng, since) {
			return true
		}
		n = n.right
	}
	return false
}

// wrote notes that the commit of version wrote into rng, at the time now. Versions must not go back. The resolver keeps rng's slices.
func (r *resolver) wrote(rng keyRange, version int64, now time.Time) {
	r.last = version
	if bytes.Compare(rng.begin, rng.end) >= 0 {
		return
	}
	r.writes.push(write{keyRange: rng, version: version, at: now})
	if r.overwrite(rng, version) {
		return
	}
	left, rest := split(r.root, rng.begin)
	inside, right := split(rest, rng.end)
	// What held at the end of rng goes on from there.
	var after int64
	if n := lastBoundary(inside); n != nil {
		after = n.version
	} else if n := lastBoundary(left); n != nil {
		after = n.version
	}
	r.count += 1 - size(inside)
	middle := newBoundary(rng.begin, version)
	if n := firstBoundary(right); n == nil || !bytes.Equal(n.key, rng.end) {
		middle = merge(middle, newBoundary(rng.end, after))
		r.count++
	}
	r.root = merge(merge(left, middle), right)
}

// overwrite is the cheap case of wrote, a range that is exactly one stretch already: hot keys, mostly.
func (r *resolver) overwrite(rng keyRange, version int64) bool {
	var at, next *boundary
	for n := r.root; n != nil; {
		switch c := bytes.Compare(n.key, rng.begin); {
		case c == 0:
			at = n
			n = n.right
		case c < 0:
			n = n.right
		default:
			next = n
			n = n.left
		}
	}
	if at == nil || next == nil || !bytes.Equal(next.key, rng.end) {
		return false
	}
	for n := r.root; ; {
		n.newest = version // no version is newer, so it is the greatest of every subtree that it is in
		if n == at {
			n.version = version
			return true
		}
		if bytes.Compare(n.key, rng.begin) < 0 {
			n = n.right
		} else {
			n = n.left
		}
	}
}

// forget drops what was written before the given time, and the oldest beyond limit writes. Transactions that read
// before what it drops are too old from then on.
func (r *resolver) forget(before time.Time, limit int) {
	for r.writes.len() > 0 {
		w := r.writes.front()
		if r.writes.len() <= limit && !w.at.Before(before) {
			return
		}
		r.writes.pop()
		r.floor = max(r.floor, w.version)
		r.tidy(w.begin)
		r.tidy(w.end)
	}
}

// tidy removes the boundary at key when both sides of it are forgotten. The last write that begins or ends at a key finds both
// sides forgotten (a newer write beside it would begin or end there too), so no boundary outlives its writes.
func (r *resolver) tidy(key []byte) {
	var at, before *boundary
	for n := r.root; n != nil; {
		switch c := bytes.Compare(n.key, key); {
		case c == 0:
			at = n
			n = n.left
		case c < 0:
			before = n
			n = n.right
		default:
			n = n.left
		}
	}
	if at == nil || at.version > r.floor || before != nil && before.version > r.floor {
		return
	}
	r.root = remove(r.root, key)
	r.count--
}

func newBoundary(key []byte, version int64) *boundary {
	return &boundary{key: key, version: version, newest: version, priority: rand.Uint32()}
}

func (n *boundary) refresh() {
	n.newest = n.version
	if n.left != nil {
		n.newest = max(n.newest, n.left.newest)
	}
	if n.right != nil {
		n.newest = max(n.newest, n.right.newest)
	}
}

// split gives the boundaries before key and those from key on.
func split(n *boundary, key []byte) (before, from *boundary) {
	if n == nil {
		return nil, nil
	}
	if bytes.Compare(n.key, key) < 0 {
		n.right, from = split(n.right, key)
		n.refresh()
		return n, from
	}
	before, n.left = split(n.left, key)
	n.refresh()
	return before, n
}

// merge joins two treaps of which every key of a is before every key of b.
func merge(a, b *boundary) *boundary {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = merge(a.right, b)
		a.refresh()
		return a
	}
	b.left = merge(a, b.left)
	b.refresh()
	return b
}

func remove(n *boundary, key []byte) *boundary {
	switch c := bytes.Compare(n.key, key); {
	case c == 0:
		return merge(n.left, n.right)
	case c < 0:
		n.right = remove(n.right, key)
	default:
		n.left = remove(n.left, key)
	}
	n.refresh()
	return n
}

func firstBoundary(n *boundary) *boundary {
	for n != nil && n.left != nil {
		n = n.left
	}
	return n
}

func lastBoundary(n *boundary) *boundary {
	for n != nil && n.right != nil {
		n = n.right
	}
	return n
}

func size(n *boundary) int {
	if n == nil {
		return 0
	}
	return 1 + size(n.left) + size(n.right)
}

type write struct {
	keyRange
	version int64
	at      time.Time
}

// writeFIFO is a queue of writes in chunks, so that what was popped is freed.
type writeFIFO struct {
	chunks [][]write
	head   int // in the first chunk
	n      int
}

const writeChunk = 512

func (q *writeFIFO) len() int { return q.n }

func (q *writeFIFO) push(w write) {
	if n := len(q.chunks); n == 0 || len(q.chunks[n-1]) == writeChunk {
		q.chunks = append(q.chunks, make([]write, 0, writeChunk))
	}
	last := &q.chunks[len(q.chunks)-1]
	*last = append(*last, w)
	q.n++
}

func (q *writeFIFO) front() write { return q.chunks[0][q.head] }

func (q *writeFIFO) pop() {
	q.chunks[0][q.head] = write{}
	q.head++
	q.n--
	if q.head == writeChunk {
		q.chunks = q.chunks[1:]
		q.head = 0
	}
}
