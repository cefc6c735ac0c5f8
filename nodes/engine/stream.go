package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/varvedb/varve/layer"
)

// phase is the life of a stream here: serving, then closing (reads only), then closed. It never goes back.
type phase uint8

const (
	serving phase = iota
	closing       // appends are refused, what was appended becomes durable and is packed
	closed        // nothing is served; the engine has forgotten the stream
)

// none is an offset that is not set.
const none = -1

// Stream is one stream that is open on this node. All methods are safe for use by several goroutines.
type Stream struct {
	engine *Engine
	id     int64
	table  int64
	bucket int
	epoch  int64

	// mu guards everything below. packed <= end <= next, and start <= end.
	mu      sync.Mutex
	phase   phase
	failure error // set for good when the log failed: no append will be acknowledged
	start   int64 // first offset that is kept, as committed in the stream's row
	packed  int64 // below it records are in data objects, from it on in tail
	end     int64 // durable end: below it every record is durable. Also the high watermark
	next    int64 // the offset that the next record gets
	ending  int64 // none, or the offset at which the stream is being ended
	ended   int64 // none, or the offset at which the stream was ended for ever

	tail       []tailBatch // the log cache: batches from packed to next, in order
	inflight   int         // appends given to the log and not yet answered
	duplicates []duplicateWait
	producers  producerTable
	changed    chan struct{}         // made on demand, closed at the next change
	watchers   map[*watcher]struct{} // see Notify
	writer     writerSeq
	retained   retained
	small      smallEntries

	readers readers // has its own lock
}

// tailBatch is one batch in the log cache. data is shared with the log and with readers: nobody changes it.
type tailBatch struct {
	base, last   int64
	maxTimestamp int64
	data         []byte
}

// ID is the stream's id.
func (s *Stream) ID() int64 { return s.id }

// Table is the id of the stream's table.
func (s *Stream) Table() int64 { return s.table }

// Bucket is the stream's place in its table (Kafka: partition).
func (s *Stream) Bucket() int { return s.bucket }

// Epoch is the stream epoch: the leader epoch under which the stream was opened here.
func (s *Stream) Epoch() int64 { return s.epoch }

// String names the stream for messages.
func (s *Stream) String() string {
	return fmt.Sprintf("stream %d (table %d bucket %d epoch %d)", s.id, s.table, s.bucket, s.epoch)
}

// Start is the first offset that is kept.
func (s *Stream) Start() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start
}

// End is the durable end: the offset after the last record that readers may see. It never goes back.
func (s *Stream) End() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// Ended tells whether and where the stream was ended for ever.
func (s *Stream) Ended() (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, s.ended != none
}

// Accepts tells whether the stream takes appends: nil, or the error that an append would get.
func (s *Stream) Accepts() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal()
}

// isServing tells whether the stream is not being closed.
func (s *Stream) isServing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == serving
}

// Changed gives a channel that is closed at the next change: the durable end or the start moved, the stream was ended or is being closed.
// Take it before looking at the stream.
func (s *Stream) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changedLocked()
}

func (s *Stream) changedLocked() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// Notify sends to c, without ever blocking, at each change (see Changed), until stop is called. One channel with a buffer of one serves
// any number of streams: it is how a request waits on many.
func (s *Stream) Notify(c chan<- struct{}) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchers == nil {
		s.watchers = make(map[*watcher]struct{})
	}
	w := &watcher{c}
	s.watchers[w] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
		if len(s.watchers) == 0 {
			s.watchers = nil
		}
	}
}

// watcher is one registration of Notify.
type watcher struct{ c chan<- struct{} }

// wake tells all who wait that something changed.
func (s *Stream) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	for w := range s.watchers {
		select {
		case w.c <- struct{}{}:
		default:
		}
	}
}

// Wait returns nil once End is greater than offset, the stream has ended or its start moved beyond offset: once a read at offset has
// something new to say. ErrNotOpen: the stream is being closed here. Otherwise the error of ctx.
func (s *Stream) Wait(ctx context.Context, offset int64) error {
	for {
		s.mu.Lock()
		switch {
		case s.end > offset, s.ended != none, s.start > offset:
			s.mu.Unlock()
			return nil
		case s.phase != serving || s.failure != nil:
			s.mu.Unlock()
			return fmt.Errorf("%w: %v", ErrNotOpen, s)
		}
		changed := s.changedLocked()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Producer tells what is known of a producer, appends that are not yet durable among it.
func (s *Stream) Producer(id int64) (layer.ProducerState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.producers[id]
	if p == nil {
		return layer.ProducerState{}, false
	}
	return p.state(s.id, id), true
}

// refusal says why the stream takes no append now; nil when it does. Call with mu held.
func (s *Stream) refusal() error {
	switch {
	case s.failure != nil:
		return s.failure
	case s.ended != none:
		return &EndedError{Stream: s.id, End: s.ended}
	case s.ending != none:
		return fmt.Errorf("%w: %v is being ended at offset %d", ErrUnavailable, s, s.ending)
	case s.phase != serving:
		return fmt.Errorf("%w: %v is being closed", ErrNotOpen, s)
	}
	return nil
}
