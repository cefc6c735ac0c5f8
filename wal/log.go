package wal

import (
	"context"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/segment"
)

// Log is the writer of one node epoch's write-ahead log.
//
// An append waits in pending until it is cut into a flight: a segment with a number, whose bytes never change from then on. One goroutine
// per flight writes it, to the layer or to the store, until it has landed, which is when it is durable. Flights land in any order; their
// appends are acknowledged in order, by whichever goroutine lands the one that the others waited for. What is acknowledged stays in the
// backlog until it is packed.
type Log struct {
	o      Options
	prefix string          // of object keys
	failed chan struct{}   // closed by fail
	labels context.Context // names the goroutines in profiles; set by Start
	wg     sync.WaitGroup

	// mu guards what follows. Nothing is waited for, and nothing of others is called, while it is held.
	mu      sync.Mutex
	ctx     context.Context // of writes; nil before Start
	cancel  context.CancelFunc
	closing bool  // Close was called: appends are refused
	stopped bool  // no write will land any more
	lost    bool  // an append that was accepted was not made durable
	err     error // why the log has failed for good
	idle    chan struct{}

	pending      []submission
	pendingBytes int64
	rejected     []submission // made after closing began
	timer        *time.Timer  // cuts for the oldest of pending
	timerSet     bool

	live       []*flight // in order of numbers: not acknowledged
	inflight   int       // flights that have not landed
	next       int64     // number of the next flight
	firstLive  int64
	acked      []*Segment // from firstLive on
	delivering bool       // a goroutine is calling done

	backlogBytes int64 // of batches in pending, live and acked
	inlineBytes  int64 // of segments that lie in the layer, or may
	objects      int64 // segments among acked that lie in the store
	waiters      []*waiter
	waking       bool // a timer looks at the waiters again

	storeRetryAt time.Time // the store failed: until then the layer is preferred
	layerDown    bool      // the layer could not be reached; probe runs
	toVerify     []*flight // put, but not yet seen unfenced
	verifying    bool
}

// submission is one call of Append.
type submission struct {
	entries []segment.Entry
	bytes   int64
	at      time.Time
	done    func(error)
}

// flight is a segment that is not yet acknowledged.
type flight struct {
	seq     int64
	key     string
	subs    []submission
	entries []segment.Entry
	bytes   int64 // of batches

	// Of the goroutine that writes it.
	data     []byte // not reused: a request that was given up may still be reading it
	parts    []segment.Part
	noInline bool // the layer cannot take it

	// Guarded by Log.mu.
	size   int64 // of data
	inline bool  // charged to inlineBytes; where it landed
	stored bool  // a put was tried
	landed bool
}

// NewLog makes the log of a fresh registration. It writes nothing before Start.
func NewLog(o Options) *Log {
	o = o.withDefaults()
	l := &Log{
		o: o, failed: make(chan struct{}), next: o.Row.FirstLive, firstLive: o.Row.FirstLive,
		prefix: LogPrefix(o.Cluster, o.Node, o.Row.Incarnation),
	}
	return l
}

// Start begins writing. When ctx ends, nothing more is written, and what is not acknowledged fails with ErrClosed.
func (l *Log) Start(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx != nil || l.stopped {
		return
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.wg.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer l.wg.Done()
		l.stop()
	})
	l.labels = pprof.WithLabels(l.ctx, pprof.Labels("loop", "wal"))
	cancel := l.cancel
	l.cancel = func() {
		if stop() {
			l.wg.Done()
		}
		cancel()
	}
	l.cut(false)
}

// stop ends all writing and lets what is left fail.
func (l *Log) stop() {
	l.mu.Lock()
	l.stopped = true
	if l.cancel != nil {
		l.cancel()
	}
	l.wakeAll()
	deliver := l.claim()
	l.mu.Unlock()
	if deliver {
		l.deliver()
	}
}

// Close refuses further appends, makes durable what was appended before, waits for that until ctx ends, and then waits for every
// goroutine of the log. What is not durable by then fails with ErrClosed, though a recoverer may find it. It returns nil when
// everything was acknowledged.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closing = true
	l.wakeAll()
	l.cut(false)
	if l.idle == nil {
		l.idle = make(chan struct{})
		if l.isIdle() {
			close(l.idle)
		}
	}
	idle := l.idle
	l.mu.Unlock()

	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.stop()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err
	case err == nil && l.lost:
		return ErrClosed
	}
	return err
}

// isIdle tells whether everything was answered. mu is held.
func (l *Log) isIdle() bool {
	return len(l.pending) == 0 && len(l.live) == 0 && !l.delivering
}

// Append hands over the batches of one stream or of several. It never blocks. They stay together in one segment, in their order; their
// data must not change any more. done is called once: with nil when this and every earlier append are durable; otherwise with an
// ErrFenced, ErrStopped or ErrClosed. Calls of done come in the order of appends and never two at a time; they hold up all later ones, so
// they must be quick. done may call Append, but is never called by it.
func (l *Log) Append(entries []segment.Entry, done func(error)) {
	s := submission{entries: entries, at: time.Now(), done: done}
	for i := range entries {
		if err := entries[i].Check(); err != nil {
			panic("wal: " + err.Error()) // a bug of the caller, which made the entry
		}
		s.bytes += int64(len(entries[i].Data))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing || l.ended() {
		l.rejected = append(l.rejected, s)
		if l.claim() {
			l.spawn(l.deliver)
		}
		return
	}
	l.pending = append(l.pending, s)
	l.pendingBytes += s.bytes
	l.backlogBytes += s.bytes
	l.cut(false)
}

// ended tells whether nothing can land any more. mu is held.
func (l *Log) ended() bool { return l.err != nil || l.stopped }

// spawn starts a goroutine that Close waits for. An append that comes after Close is answered by a goroutine that nothing waits for. mu is held.
func (l *Log) spawn(run func()) {
	if l.stopped {
		go run()
		return
	}
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		if l.labels != nil {
			pprof.SetGoroutineLabels(l.labels)
		}
		run()
	}()
}

// fail ends the log for good.
func (l *Log) fail(err error) {
	l.mu.Lock()
	if l.err == nil && !l.stopped {
		l.err = err
		close(l.failed)
		l.o.Logger.Error("write-ahead log has failed", "node", l.o.Node, "error", err)
	}
	l.cancel()
	l.wakeAll()
	deliver := l.claim()
	l.mu.Unlock()
	if deliver {
		l.deliver()
	}
}

// Failed is closed when the log has failed for good: the node must stop serving.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// Err is why the log has failed: an ErrFenced or an ErrStopped; nil while it has not.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Acknowledged lists the segments that are acknowledged and not packed, in order of their numbers. A segment is listed before done is
// called for what it holds.
func (l *Log) Acknowledged() []*Segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*Segment(nil), l.acked...)
}

// Backlog is what is acknowledged and not packed.
type Backlog struct {
	Segments    int   // all
	Objects     int   // those that lie in the store: a recoverer reads each
	InlineBytes int64 // of those that lie in the layer, or are on their way there
}

// Backlog tells what waits for packing.
func (l *Log) Backlog() Backlog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Backlog{Segments: len(l.acked), Objects: int(l.objects), InlineBytes: l.inlineBytes}
}

// Packed says that the first live number has moved to next: index entries cover every segment below. Their memory and backlog are freed.
func (l *Log) Packed(next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.acked) && l.acked[n].Seq < next {
		s := l.acked[n]
		l.backlogBytes -= s.batchBytes
		if s.Inline {
			l.inlineBytes -= s.Bytes
		} else {
			l.objects--
		}
		l.acked[n] = nil
		n++
	}
	l.acked = l.acked[n:]
	if n == 0 {
		return
	}
	l.firstLive += int64(n)
	l.observe()
	l.cut(false)
	l.wake()
}

// observe publishes the gauges. mu is held.
func (l *Log) observe() {
	m := l.o.Metrics
	m.inflight.Set(float64(l.inflight))
	m.backlogSegments.Set(float64(l.next - l.firstLive))
	m.backlogBytes.Set(float64(l.backlogBytes))
	m.backlogInline.Set(float64(l.inlineBytes))
}

// header is that of a segment of this log.
func (l *Log) header(seq int64) segment.Header {
	return logHeader(segment.KindSegment, l.o.Cluster, l.o.Row, l.o.Node, seq)
}

func logHeader(kind segment.Kind, cluster string, row layer.WALRow, node layer.NodeRef, seq int64) segment.Header {
	return segment.Header{Kind: kind, Cluster: cluster, Node: node.ID, NodeEpoch: node.Epoch, Seq: seq, Incarnation: row.Incarnation}
}
