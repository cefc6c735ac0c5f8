package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/faults"
	"github.com/varvedb/varve/layer/kvtest"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

// world is one cluster: metadata, an object store, and a table whose streams node 1 leads in each of its lives.
type world struct {
	t       testing.TB
	db      *faults.Database
	layer   *layer.Store
	store   *objectstest.Fake
	tables  *tableOptions
	options Options
	wal     wal.Options   // what the test sets of it
	alone   time.Duration // as in Engine
	logger  *slog.Logger

	ids  []int64 // of the streams
	dead []layer.NodeRef
}

// life is one node epoch of node 1.
type life struct {
	w       *world
	ref     layer.NodeRef
	log     *wal.Log
	engine  *Engine
	streams []*Stream
	cancel  context.CancelFunc
}

func newWorld(t testing.TB, streams int) *world {
	t.Helper()
	return newWorldOn(t, kvtest.Open(t), streams)
}

func newWorldOn(t testing.TB, db kv.Database, streams int) *world {
	t.Helper()
	w := &world{t: t, db: faults.Wrap(db, 1, faults.Rates{}), store: objectstest.NewFake(), tables: keepAll(), options: DefaultOptions(), alone: closeAlone, logger: slog.New(slog.DiscardHandler)}
	if os.Getenv("ENGINE_TEST_LOG") != "" {
		w.logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	w.options.RetryMin, w.options.RetryMax = time.Millisecond, 20*time.Millisecond
	w.options.PackInterval = time.Hour // tests say when to pack
	w.options.MergeInterval = 0
	w.options.RetentionInterval = time.Hour
	w.options.HousekeepInterval = time.Hour
	w.wal = wal.Options{RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond, PutTimeout: 200 * time.Millisecond, InlineTimeout: 200 * time.Millisecond}
	var err error
	w.layer, err = layer.Open(t.Context(), w.db, "test")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	node := w.register()
	_, rows, err := w.layer.CreateTable(t.Context(), node.ref(), layer.CreateTable{
		Name: "table", UUID: uuid.New(), Kind: layer.LogTable, Buckets: streams, Leaders: repeat(int64(1), streams), RequestID: uuid.New(), At: time.Now()})
	require.NoError(t, err)
	for _, row := range rows {
		w.ids = append(w.ids, row.ID)
	}
	w.dead = append(w.dead, node.ref())
	return w
}

func repeat[T any](v T, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

type registration struct {
	node layer.NodeRow
	wal  layer.WALRow
}

func (r registration) ref() layer.NodeRef { return r.node.Ref() }

func (w *world) register() registration {
	w.t.Helper()
	node, row, err := w.layer.RegisterNode(w.t.Context(), layer.NodeInfo{ID: 1, Slots: 1}, layer.FenceBoth, uuid.New(), uuid.New(), time.Now())
	require.NoError(w.t, err)
	return registration{node, row}
}

// start registers node 1 anew, recovers what its earlier lives left and opens every stream.
func (w *world) start() *life {
	w.t.Helper()
	r := w.register()
	w.recover(r.ref())
	l := &life{w: w, ref: r.ref()}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	o := w.wal
	o.Layer, o.Store, o.Cluster, o.Node, o.Row, o.Logger = w.layer, w.store, "test", l.ref, r.wal, w.logger
	l.log = wal.NewLog(o)
	l.log.Start(ctx)
	var err error
	l.engine, err = New(Deps{Layer: w.layer, Log: l.log, Store: w.store, Tables: w.tables, Cluster: "test", Node: l.ref, Logger: w.logger}, w.options)
	require.NoError(w.t, err)
	l.engine.alone = w.alone
	l.engine.Start(ctx)
	w.t.Cleanup(l.crash)
	for _, id := range w.ids {
		l.streams = append(l.streams, l.open(id))
	}
	return l
}

// recover takes over what earlier lives have left.
func (w *world) recover(by layer.NodeRef) {
	w.t.Helper()
	ctx := w.t.Context()
	for _, dead := range w.dead {
		_, err := wal.Recover(ctx, wal.RecoverOptions{Layer: w.layer, Store: w.store, Cluster: "test", By: by, Dead: dead, Logger: w.logger})
		require.NoError(w.t, err, "recover %v", dead)
		for more := true; more; {
			_, more, err = w.layer.CloseStreamsOf(ctx, by, dead, 100)
			require.NoError(w.t, err)
		}
	}
	w.dead = []layer.NodeRef{by}
}

func (l *life) open(id int64) *Stream {
	l.w.t.Helper()
	ctx := l.w.t.Context()
	row, err := l.w.layer.Stream(ctx, id)
	require.NoError(l.w.t, err)
	if row.Epoch == row.LeaderEpoch {
		row, err = l.w.layer.LeadAgain(ctx, l.ref, id, row.LeaderEpoch)
		require.NoError(l.w.t, err)
	}
	row, err = l.w.layer.OpenStream(ctx, l.ref, id, row.LeaderEpoch)
	require.NoError(l.w.t, err)
	s, err := l.engine.Open(ctx, row)
	require.NoError(l.w.t, err)
	return s
}

// crash ends everything at once. What was in flight may have landed or not.
func (l *life) crash() {
	l.cancel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.log.Close(ctx)
	l.engine.Stop()
}

// stop closes every stream and the log.
func (l *life) stop() {
	l.w.t.Helper()
	ctx := l.w.t.Context()
	for _, s := range l.engine.Streams() {
		require.NoError(l.w.t, l.engine.Close(ctx, s))
		require.NoError(l.w.t, l.w.layer.CloseStream(ctx, l.ref, s.ID(), s.Epoch()))
	}
	require.NoError(l.w.t, l.log.Close(ctx))
	l.engine.Stop()
}

// pack packs everything that is durable.
func (l *life) pack() {
	l.w.t.Helper()
	for _, s := range l.streams {
		require.NoError(l.w.t, s.awaitPacked(l.w.t.Context(), s.End()))
	}
}

// value makes the value of a record that says where it belongs, of at least 16 bytes.
func value(stream int64, n uint64, size int) []byte {
	b := make([]byte, max(size, 16))
	binary.BigEndian.PutUint64(b, uint64(stream))
	binary.BigEndian.PutUint64(b[8:], n)
	for i := 16; i < len(b); i++ {
		b[i] = byte(n)*31 + byte(i)*7 // not the same everywhere, so that bytes in wrong places show
	}
	return b
}

// build makes a batch of values.
func build(timestamp int64, producer *batch.Producer, values ...[]byte) batch.Batch {
	records := make([]batch.Record, len(values))
	for i, v := range values {
		records[i] = batch.Record{Timestamp: timestamp, Value: v}
	}
	b, _, err := batch.Next(batch.Build(records, batch.BuildOptions{Producer: producer}))
	if err != nil {
		panic(err)
	}
	return b
}

// fill appends count batches of records of size bytes to s, and gives the values of the records.
func fill(t testing.TB, s *Stream, count, records, size int) [][]byte {
	t.Helper()
	var all [][]byte
	var wg sync.WaitGroup
	errs := make(chan error, count)
	for range count {
		values := make([][]byte, records)
		for i := range values {
			values[i] = value(s.ID(), uint64(len(all)), size)
			all = append(all, values[i])
		}
		a := Append{Batches: []batch.Batch{build(time.Now().UnixMilli(), nil, values...)}}
		require.NoError(t, s.Reserve(t.Context(), a.Bytes()))
		wg.Add(1)
		s.AppendAsync(a, func(_ AppendResult, err error) { errs <- err; wg.Done() })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	return all
}

// readValues reads a stream from an offset to its end, and checks that offsets follow each other.
func readValues(ctx context.Context, s *Stream, from int64, maxBytes int) ([][]byte, error) {
	var values [][]byte
	for next := from; ; {
		r, err := s.Read(ctx, Read{Offset: next, MaxBytes: maxBytes, MinOneBatch: true})
		if err != nil {
			return values, err
		}
		if len(r.Batches) == 0 {
			if next < r.End {
				return values, fmt.Errorf("read at %d of %d gave nothing", next, r.End)
			}
			return values, nil
		}
		for _, raw := range r.Batches {
			b, rest, err := batch.Next(raw)
			if err != nil || len(rest) > 0 {
				return values, errors.Join(err, fmt.Errorf("%d bytes after the batch", len(rest)))
			}
			if err := b.CheckCRC(); err != nil {
				return values, err
			}
			for record, err := range b.All(1 << 20) {
				if err != nil {
					return values, err
				}
				if record.Offset < next {
					continue
				}
				if record.Offset != next {
					return values, fmt.Errorf("offset %d follows %d", record.Offset, next-1)
				}
				values = append(values, record.Value)
				next++
			}
		}
		if next != r.Next {
			return values, fmt.Errorf("read says to go on at %d, its records end at %d", r.Next, next)
		}
	}
}

func requireValues(t testing.TB, want [][]byte, s *Stream, from int64) {
	t.Helper()
	got, err := readValues(t.Context(), s, from, 1<<20)
	require.NoError(t, err)
	require.Equal(t, len(want)-int(from), len(got))
	for i := range got {
		require.Equal(t, want[int(from)+i], got[i], "offset %d", int(from)+i)
	}
}

func dataKeys(store *objectstest.Fake) []string {
	var keys []string
	for _, key := range store.Keys() {
		if len(key) > 15 && key[4:15] == "/test/data/" {
			keys = append(keys, key)
		}
	}
	return keys
}

var _ objects.Store = (*objectstest.Fake)(nil)
