package engine

import (
	"context"
	"sync"
)

// packWaiters are the callers that wait until something is packed.
type packWaiters struct {
	mu  sync.Mutex
	set map[*packWaiter]struct{}
}

// packWaiter waits until what stream has below offset to is packed.
type packWaiter struct {
	stream  *Stream
	to      int64
	closing bool // the stream takes no more appends: to is its end
	handed  bool // from the closing loop to the packing loop; guarded by mu of packWaiters
}

func (w *packWaiter) waits() bool { return w.stream.packedEnd() < w.to }

func (w *packWaiters) add(one *packWaiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		w.set = make(map[*packWaiter]struct{})
	}
	w.set[one] = struct{}{}
}

func (w *packWaiters) remove(one *packWaiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.set, one)
}

// any tells whether somebody waits for a pack of everything.
func (w *packWaiters) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.set {
		if (!one.closing || one.handed) && one.waits() {
			return true
		}
	}
	return false
}

// closing gives the streams that wait to be closed, by the packing loop (handed) or by the closing loop.
func (w *packWaiters) closing(handed bool) map[*Stream]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	streams := make(map[*Stream]bool)
	for one := range w.set {
		if one.closing && one.handed == handed && one.waits() {
			streams[one.stream] = true
		}
	}
	return streams
}

// handOver leaves closing streams to the packing loop.
func (w *packWaiters) handOver(streams map[*Stream]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.set {
		if one.closing && streams[one.stream] {
			one.handed = true
		}
	}
}

// awaitPacked asks for packs until everything below to is in the index.
func (s *Stream) awaitPacked(ctx context.Context, to int64) error {
	return s.awaitPack(ctx, &packWaiter{stream: s, to: to})
}

// awaitAdopted is awaitPacked for a stream that is closing and has drained.
func (s *Stream) awaitAdopted(ctx context.Context) error {
	return s.awaitPack(ctx, &packWaiter{stream: s, to: s.End(), closing: true})
}

func (s *Stream) awaitPack(ctx context.Context, w *packWaiter) error {
	s.engine.waiters.add(w)
	defer s.engine.waiters.remove(w)
	if w.closing {
		s.engine.pokeCloser()
	} else {
		s.engine.pokePacker()
	}
	return s.await(ctx, func() (bool, error) { return s.packed >= w.to, s.failure })
}

// packedEnd is the offset below which the stream is in the index.
func (s *Stream) packedEnd() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.packed
}
