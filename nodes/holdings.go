package nodes

import (
	"sync"

	"github.com/varvedb/varve/nodes/engine"
)

// bucketKey names a bucket of a table for ever: names of tables come back, ids do not.
type bucketKey struct {
	table  int64
	bucket int
}

// holding is one stream that is open in the engine.
type holding struct {
	stream  *engine.Stream
	closing bool // refused to requests; the sync task closes it
}

// holdings are the streams that this node has open. The sync task writes, requests read.
type holdings struct {
	mu       sync.RWMutex // guards what follows
	byID     map[int64]*holding
	byBucket map[bucketKey]*engine.Stream // without those that are closing
	waiters  map[bucketKey]*waiter
}

// waiter lets requests for one bucket wait for it to open.
type waiter struct {
	opened  chan struct{} // closed when it opens
	waiting int
}

func newHoldings() *holdings {
	return &holdings{byID: map[int64]*holding{}, byBucket: map[bucketKey]*engine.Stream{}, waiters: map[bucketKey]*waiter{}}
}

// get is the stream that serves a bucket, or nil.
func (h *holdings) get(key bucketKey) *engine.Stream {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.byBucket[key]
}

// wait gives a channel that is closed when the bucket opens. release must be called.
func (h *holdings) wait(key bucketKey) (opened <-chan struct{}, release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.waiters[key]
	if w == nil {
		w = &waiter{opened: make(chan struct{})}
		h.waiters[key] = w
	}
	w.waiting++
	return w.opened, func() { h.release(key, w) }
}

func (h *holdings) release(key bucketKey, w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.waiting--
	if w.waiting == 0 && h.waiters[key] == w {
		delete(h.waiters, key)
	}
}

// add takes in a stream that was opened, and wakes those who wait for it.
func (h *holdings) add(s *engine.Stream) {
	key := bucketKey{s.Table(), s.Bucket()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byID[s.ID()] = &holding{stream: s}
	h.byBucket[key] = s
	if w := h.waiters[key]; w != nil {
		delete(h.waiters, key)
		close(w.opened)
	}
}

// refuse lets no request get the stream any more. It gives the stream, or nil when it is not held.
func (h *holdings) refuse(id int64) *engine.Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.byID[id]
	if held == nil {
		return nil
	}
	held.closing = true
	if key := (bucketKey{held.stream.Table(), held.stream.Bucket()}); h.byBucket[key] == held.stream {
		delete(h.byBucket, key)
	}
	return held.stream
}

// remove forgets a stream that was closed.
func (h *holdings) remove(s *engine.Stream) {
	h.refuse(s.ID())
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.byID[s.ID()]; held != nil && held.stream == s {
		delete(h.byID, s.ID())
	}
}

// epoch is the stream epoch at which a stream is held, and whether it is being closed.
func (h *holdings) epoch(id int64) (epoch int64, closing, held bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if hold := h.byID[id]; hold != nil {
		return hold.stream.Epoch(), hold.closing, true
	}
	return 0, false, false
}

// all lists what is held.
func (h *holdings) all() []*engine.Stream {
	h.mu.RLock()
	defer h.mu.RUnlock()
	streams := make([]*engine.Stream, 0, len(h.byID))
	for _, held := range h.byID {
		streams = append(streams, held.stream)
	}
	return streams
}

func (h *holdings) count() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.byID)
}
