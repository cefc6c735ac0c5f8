package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

// Layer is what an engine needs of the metadata; *layer.Store is it.
type Layer interface {
	DurableEnd(ctx context.Context, stream int64) (int64, error)
	ObjectEntries(ctx context.Context, stream, from int64, limit int) ([]layer.ObjectEntry, error)
	Producers(ctx context.Context, stream int64) ([]layer.ProducerState, error)
	ForgetProducers(ctx context.Context, node layer.NodeRef, stream, epoch int64, producers []int64) error
	Prepare(ctx context.Context, node layer.NodeRef, objects []string, at time.Time) error
	CommitPack(ctx context.Context, p layer.Pack) error
	MergeEntries(ctx context.Context, node layer.NodeRef, stream, epoch int64, old []layer.ObjectEntry, merged layer.ObjectEntry, object layer.ObjectMeta, at time.Time) error
	TrimStream(ctx context.Context, by layer.NodeRef, stream, epoch, start int64) (row layer.StreamRow, more bool, err error)
	EndStream(ctx context.Context, by layer.NodeRef, stream, epoch, end int64) error
	WAL(ctx context.Context, node layer.NodeRef) (layer.WALRow, error)
	VerifyNode(ctx context.Context, node layer.NodeRef) error
}

// Log is what an engine needs of the write-ahead log; *wal.Log is it.
type Log interface {
	Reserve(ctx context.Context, bytes int) error
	Append(entries []segment.Entry, done func(error))
	Acknowledged() []*wal.Segment
	Backlog() wal.Backlog
	Packed(next int64)
	Failed() <-chan struct{}
	Err() error
}

// Deps are what an engine works with. The caller starts and closes the log, and closes the store.
type Deps struct {
	Layer   Layer
	Log     Log
	Store   objects.Store
	Tables  Tables
	Cluster string
	Node    layer.NodeRef
	Logger  *slog.Logger
	Metrics *Metrics // nil: not registered
}

// Engine serves the streams that one node epoch has open. New, Start, Open and Close streams, Stop.
type Engine struct {
	layer   Layer
	log     Log
	store   objects.Store
	tables  Tables
	cluster string
	node    layer.NodeRef
	logger  *slog.Logger
	metrics *Metrics
	options Options

	mu      sync.Mutex // guards streams
	streams map[int64]*Stream

	unpacked            atomic.Int64 // bytes that became durable and were not yet taken by a pack
	waiters             packWaiters  // Close and Trim calls that wait for a pack
	reserving, reserved atomic.Int64 // Reserve calls that wait, and that have returned
	packNow             chan struct{}
	packer              packer
	packMu              sync.Mutex // held while packing, and while producers are forgotten
	closeNow            chan struct{}
	commitMu            sync.Mutex    // held while a pack is planned and while one is committed, and while producers are forgotten; guards hurried
	hurried             time.Time     // end of the last pack that somebody waited for to close a stream
	alone               time.Duration // closeAlone, but in tests

	entries *entryCache
	indexes *indexCache
	blocks  *blockCache
	ahead   budget // bytes fetched ahead of readers

	failOnce sync.Once
	failed   chan struct{}
	failure  atomic.Pointer[error]

	life     context.Context // from Start to Stop
	cancel   context.CancelFunc
	spawnMu  sync.Mutex // guards stopping, and running.Go against running.Wait
	stopping bool
	running  sync.WaitGroup // background loops and fetches
	stopOnce sync.Once
}

// New makes an engine that serves nothing until it is started. Options must be valid.
func New(deps Deps, options Options) (*Engine, error) {
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("engine options: %w", err)
	}
	if deps.Metrics == nil {
		deps.Metrics = NewMetrics(nil)
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		layer: deps.Layer, log: deps.Log, store: deps.Store, tables: deps.Tables, cluster: deps.Cluster, node: deps.Node,
		logger: deps.Logger, metrics: deps.Metrics, options: options,
		streams:  make(map[int64]*Stream),
		packNow:  make(chan struct{}, 1),
		failed:   make(chan struct{}),
		stopping: true,
		closeNow: make(chan struct{}, 1),
		alone:    closeAlone,
	}
	e.ahead.limit = options.ReadaheadBytes
	e.ahead.gauge = deps.Metrics.ReadaheadBytes
	var err error
	if e.entries, err = newEntryCache(options.IndexCacheBytes); err != nil {
		return nil, err
	}
	if e.indexes, err = newIndexCache(options.IndexCacheBytes); err != nil {
		return nil, err
	}
	if e.blocks, err = newBlockCache(options); err != nil {
		return nil, err
	}
	return e, nil
}

// Start starts the background loops. They end with ctx or Stop.
func (e *Engine) Start(ctx context.Context) {
	e.life, e.cancel = context.WithCancel(ctx)
	e.spawnMu.Lock()
	e.stopping = false
	e.spawnMu.Unlock()
	e.run("watch log", e.watchLog)
	e.run("pack", e.packLoop)
	e.run("close", e.closeLoop)
	e.run("retention", e.retentionLoop)
	e.run("housekeep", e.housekeepLoop)
	if e.options.MergeInterval > 0 {
		e.run("merge", e.mergeLoop)
	}
}

// Stop ends the background loops and waits for them. It closes no stream: what was not closed before is recovered from the log. Streams
// serve nothing afterwards. It may be called more than once.
func (e *Engine) Stop() {
	e.stopOnce.Do(func() {
		e.spawnMu.Lock()
		e.stopping = true
		e.spawnMu.Unlock()
		if e.cancel != nil {
			e.cancel()
		}
		e.running.Wait()
		for _, s := range e.Streams() {
			e.forget(s)
		}
		e.blocks.close()
		e.indexes.close()
		e.entries.close()
	})
}

// Failed is closed when this node epoch can never acknowledge again: it was fenced, or its log failed for good. The node must stop serving.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// Err is why Failed is closed, an ErrFenced; nil before.
func (e *Engine) Err() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// fail ends appends for good.
func (e *Engine) fail(cause error) {
	e.failOnce.Do(func() {
		err := fenced(cause)
		e.failure.Store(&err)
		close(e.failed)
		e.logger.Error("engine failed, it acknowledges nothing any more", "node", e.node, "error", err)
		for _, s := range e.Streams() {
			s.fail(err)
		}
	})
}

// watchLog passes the log's failure on to the streams.
func (e *Engine) watchLog(ctx context.Context) {
	select {
	case <-e.log.Failed():
		e.fail(e.log.Err())
	case <-e.failed:
	case <-ctx.Done():
	}
}

// Open serves a stream that this node epoch has just opened in the layer; row is OpenStream's answer. It loads the durable end and the
// producers. When the stream is served already at this epoch it returns that one.
//
// Errors: ErrFenced; those of the layer, which can be tried again.
func (e *Engine) Open(ctx context.Context, row layer.StreamRow) (*Stream, error) {
	if err := e.Err(); err != nil {
		return nil, err
	}
	if s := e.stream(row.ID); s != nil && s.epoch == row.Epoch {
		return s, nil
	}
	end, err := e.layer.DurableEnd(ctx, row.ID)
	if err != nil {
		return nil, fmt.Errorf("open stream %d: durable end: %w", row.ID, err)
	}
	producers, err := e.layer.Producers(ctx, row.ID)
	if err != nil {
		return nil, fmt.Errorf("open stream %d: producers: %w", row.ID, err)
	}
	if row.Ended != nil && *row.Ended != end {
		return nil, fmt.Errorf("open stream %d: it ended at offset %d and has records up to %d", row.ID, *row.Ended, end)
	}
	s := &Stream{
		engine: e, id: row.ID, table: row.Table, bucket: row.Bucket, epoch: row.Epoch,
		start: row.Start, packed: end, end: end, next: end, ending: none, ended: none,
		producers: loadProducers(producers, time.Now()),
	}
	if row.Ended != nil {
		s.ended = *row.Ended
	}
	return e.admit(s)
}

// admit adds s to what is served.
func (e *Engine) admit(s *Stream) (*Stream, error) {
	e.mu.Lock()
	if other := e.streams[s.id]; other != nil {
		e.mu.Unlock()
		if other.epoch == s.epoch {
			return other, nil
		}
		return nil, fmt.Errorf("%w: %v is still served here", ErrUnavailable, other)
	}
	e.streams[s.id] = s
	e.metrics.StreamsOpen.Set(float64(len(e.streams)))
	e.mu.Unlock()
	if err := e.Err(); err != nil { // it failed in between, and may not have seen s
		s.fail(err)
	}
	return s, nil
}

// Close ends appends to s, waits until what was appended is durable and in the index (adopted where it lies, but for what is inline), and forgets s. Afterwards the layer may be told CloseStream.
// When it fails, or ctx ends, s stays as it is and refuses appends; Close may be called again.
//
// Errors: ErrFenced, the error of ctx.
func (e *Engine) Close(ctx context.Context, s *Stream) error {
	s.mu.Lock()
	if s.phase == closed {
		s.mu.Unlock()
		return nil
	}
	s.phase = closing
	s.wake()
	s.mu.Unlock()
	if err := s.drain(ctx); err != nil {
		return fmt.Errorf("close %v: %w", s, err)
	}
	if s.unfinishedEnd() {
		if err := s.finishEnd(ctx); err != nil {
			return fmt.Errorf("close %v: %w", s, err)
		}
	}
	if err := s.awaitAdopted(ctx); err != nil {
		return fmt.Errorf("close %v: %w", s, err)
	}
	e.forget(s)
	return nil
}

// Forget stops serving s at once, without packing: its table was deleted, or this node epoch is over.
func (e *Engine) Forget(s *Stream) { e.forget(s) }

// Streams lists what is served, in no order.
func (e *Engine) Streams() []*Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	streams := make([]*Stream, 0, len(e.streams))
	for _, s := range e.streams {
		streams = append(streams, s)
	}
	return streams
}

// Stream gives a stream that is served here, or nil.
func (e *Engine) Stream(id int64) *Stream { return e.stream(id) }

func (e *Engine) stream(id int64) *Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.streams[id]
}

func (e *Engine) forget(s *Stream) {
	e.mu.Lock()
	if e.streams[s.id] == s {
		delete(e.streams, s.id)
	}
	e.metrics.StreamsOpen.Set(float64(len(e.streams)))
	e.mu.Unlock()
	s.shut()
	e.entries.drop(s.id)
	s.readers.close(e)
}

// shut ends serving. What waits for the log is still answered by it.
func (s *Stream) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = closed
	s.tail, s.producers = nil, nil
	s.wake()
}

// fail refuses all appends from now on. What is in flight is answered by the log.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
	}
	s.wake()
}

// drain waits until no append is in flight.
func (s *Stream) drain(ctx context.Context) error {
	return s.await(ctx, func() (bool, error) { return s.inflight == 0 && len(s.duplicates) == 0, s.failure })
}

// await waits until done says so, which is asked with mu held at each change.
func (s *Stream) await(ctx context.Context, done func() (bool, error)) error {
	for {
		s.mu.Lock()
		ok, err := done()
		if !ok && err == nil && s.phase == closed {
			err = fmt.Errorf("%w: %v", ErrNotOpen, s)
		}
		changed := s.changedLocked()
		s.mu.Unlock()
		if ok {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errStopped ends what still runs when the engine stops, and is told to readers that come later.
var errStopped = fmt.Errorf("%w: engine is stopping", ErrNotOpen)
