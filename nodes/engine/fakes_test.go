package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/varvedb/varve/layer/kvtest"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/segment"
)

func TestMain(m *testing.M) { kvtest.Main(m) }

// handLog is a log whose appends become durable when the test says so.
type handLog struct {
	mu      sync.Mutex
	waiting []handAppend
	entries []segment.Entry
	failed  chan struct{}
	err     error
}

type handAppend struct {
	entries []segment.Entry
	done    func(error)
}

func newHandLog() *handLog { return &handLog{failed: make(chan struct{})} }

func (l *handLog) Reserve(context.Context, int) error { return l.Err() }

func (l *handLog) Append(entries []segment.Entry, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, handAppend{entries, done})
	l.entries = append(l.entries, entries...)
}

// answer answers the oldest n appends.
func (l *handLog) answer(n int, err error) {
	l.mu.Lock()
	ready := l.waiting[:n]
	l.waiting = l.waiting[n:]
	l.mu.Unlock()
	for _, a := range ready {
		a.done(err)
	}
}

func (l *handLog) fail(err error) {
	l.mu.Lock()
	l.err = err
	n := len(l.waiting)
	close(l.failed)
	l.mu.Unlock()
	l.answer(n, err)
}

func (l *handLog) Backlog() wal.Backlog         { return wal.Backlog{} }
func (l *handLog) Acknowledged() []*wal.Segment { return nil }
func (l *handLog) Packed(int64)                 {}
func (l *handLog) Failed() <-chan struct{}      { return l.failed }

func (l *handLog) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// emptyLayer knows no stream's past, and records ends.
type emptyLayer struct {
	Layer
	mu    sync.Mutex
	ended map[int64]int64
	err   error // of EndStream
	rows  []layer.ProducerState

	verify error // of VerifyNode
}

func (l *emptyLayer) VerifyNode(context.Context, layer.NodeRef) error  { return l.verify }
func (l *emptyLayer) DurableEnd(context.Context, int64) (int64, error) { return 0, nil }
func (l *emptyLayer) Producers(context.Context, int64) ([]layer.ProducerState, error) {
	return l.rows, nil
}
func (l *emptyLayer) EndStream(_ context.Context, _ layer.NodeRef, stream, _, end int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if l.ended == nil {
		l.ended = map[int64]int64{}
	}
	l.ended[stream] = end
	return nil
}

// tableOptions are the same for every table.
type tableOptions struct {
	mu      sync.Mutex
	options TableOptions
}

func keepAll() *tableOptions {
	return &tableOptions{options: TableOptions{Retention: -1, RetentionBytes: -1}}
}

func (t *tableOptions) TableOptions(int64) TableOptions {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.options
}

func (t *tableOptions) set(o TableOptions) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.options = o
}

// unit is an engine over a handLog, with one stream.
type unit struct {
	log    *handLog
	layer  *emptyLayer
	tables *tableOptions
	engine *Engine
	stream *Stream
}

func newUnit(t *testing.T, rows ...layer.ProducerState) *unit {
	t.Helper()
	u := &unit{log: newHandLog(), layer: &emptyLayer{rows: rows}, tables: keepAll()}
	store := objectstest.NewFake()
	options := DefaultOptions()
	options.HousekeepInterval = 5 * time.Millisecond
	e, err := New(Deps{Layer: u.layer, Log: u.log, Store: store, Tables: u.tables, Cluster: "test", Node: layer.NodeRef{ID: 1, Epoch: 1}}, options)
	require.NoError(t, err)
	e.Start(t.Context())
	t.Cleanup(func() { e.Stop(); require.NoError(t, store.Close()) })
	u.engine = e
	u.stream, err = e.Open(t.Context(), layer.StreamRow{ID: 7, Table: 3, Bucket: 2, Epoch: 4})
	require.NoError(t, err)
	return u
}

// answers collects what AppendAsync answers.
type answers struct {
	mu   sync.Mutex
	list []appendAnswer
}

func (a *answers) done(r AppendResult, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, appendAnswer{r, err})
}

func (a *answers) all() []appendAnswer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]appendAnswer(nil), a.list...)
}

// await gives the answers once there are n.
func (a *answers) await(t *testing.T, n int) []appendAnswer {
	t.Helper()
	require.Eventually(t, func() bool { return len(a.all()) >= n }, 10*time.Second, time.Millisecond)
	return a.all()
}

// makeBatch builds a batch of n records, by a producer when id >= 0.
func makeBatch(n int, id int64, epoch int16, seq int32) batch.Batch {
	return makeBatchOf(n, 10, id, epoch, seq)
}

func makeBatchOf(n, size int, id int64, epoch int16, seq int32) batch.Batch {
	records := make([]batch.Record, n)
	for i := range records {
		records[i] = batch.Record{Timestamp: 1000 + int64(i), Value: make([]byte, size)}
	}
	var o batch.BuildOptions
	if id >= 0 {
		o.Producer = &batch.Producer{ID: id, Epoch: epoch, BaseSequence: seq}
	}
	b, _, err := batch.Next(batch.Build(records, o))
	if err != nil {
		panic(err)
	}
	return b
}

// row is that of a stream that was just opened.
func row(id int64) layer.StreamRow { return layer.StreamRow{ID: id, Table: 3, Epoch: 4} }
