package wal

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/segment"
)

const testCluster = "test"

// strictStore is a Fake that notices when two bodies are put under one key.
type strictStore struct {
	*objectstest.Fake
	t  testing.TB
	mu sync.Mutex // guards bodies
	// bodies: what was put, by key. A seal is another writer's.
	bodies map[string][sha256.Size]byte
}

func (s *strictStore) check(key string, body []byte) {
	if o, _, err := segment.Decode(body); err == nil && o.Kind == segment.KindSeal {
		return
	}
	sum := sha256.Sum256(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.bodies[key]; ok && before != sum {
		s.t.Errorf("other bytes were put at %s", key)
	}
	s.bodies[key] = sum
}

func (s *strictStore) Put(ctx context.Context, key string, body []byte) error {
	s.check(key, body)
	return s.Fake.Put(ctx, key, body)
}

func (s *strictStore) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	s.check(key, body)
	return s.Fake.PutIfAbsent(ctx, key, body)
}

// harness is a layer, a store, and the log of node 1.
type harness struct {
	t     testing.TB
	layer *fakeLayer
	store *strictStore
	row   layer.WALRow
	node  layer.NodeRef
	by    layer.NodeRef // a live node that recovers
	log   *Log

	mu      sync.Mutex // guards what follows
	appends int
	next    map[int64]int64 // end of each stream as appended
	answers []answered
}

// answered is what one append was told.
type answered struct {
	append  int
	entries []segment.Entry
	err     error
}

var testStreams = []int64{11, 12, 13}

func newHarness(t testing.TB, mode layer.FenceMode, edit func(*Options)) *harness {
	h := &harness{t: t, layer: newFakeLayer(), next: map[int64]int64{}}
	h.store = &strictStore{Fake: objectstest.NewFake(), t: t, bodies: map[string][sha256.Size]byte{}}
	h.by = h.layer.register(2, mode).Node
	h.row = h.layer.register(1, mode)
	h.node = h.row.Node
	h.layer.openStreams(h.node, testStreams...)
	o := Options{
		Layer: h.layer, Store: h.store, Cluster: testCluster, Node: h.node, Row: h.row, Gather: -1,
		RetryMin: time.Millisecond, RetryMax: 4 * time.Millisecond, InlineTimeout: time.Second, PutTimeout: time.Second, VerifyTimeout: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&o)
	}
	h.log = NewLog(o)
	h.log.Start(t.Context())
	return h
}

// objectsOnly makes every segment an object.
func objectsOnly(o *Options) { o.InlineMax, o.InlineFallback = -1, -1 }

// batch makes a batch that says what it is, so that a reader can tell when it gets another.
func batch(stream, base, last int64, size int) segment.Entry {
	data := fmt.Appendf(nil, "stream %d offsets %d to %d;", stream, base, last)
	for len(data) < size {
		data = append(data, byte('a'+len(data)%26))
	}
	return segment.Entry{
		Stream: stream, Epoch: 1, Base: base, Last: last, MaxTimestamp: 1000 + last, Data: data,
		Producer: segment.Producer{ID: stream * 10, Epoch: 1, FirstSeq: base, LastSeq: last},
	}
}

// append appends one batch of about size bytes to each of the streams; what it is told is in answers.
func (h *harness) append(size int, streams ...int64) {
	h.mu.Lock()
	n := h.appends
	h.appends++
	var entries []segment.Entry
	for _, s := range streams {
		base := h.next[s]
		last := base + int64(n%3)
		h.next[s] = last + 1
		entries = append(entries, batch(s, base, last, size))
	}
	h.log.Append(entries, func(err error) {
		if err == nil {
			h.requireDurable(entries)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.answers = append(h.answers, answered{n, entries, err})
	})
	h.mu.Unlock()
}

// requireDurable checks, at the moment of acknowledgement, that the bytes are where a recoverer will look.
func (h *harness) requireDurable(entries []segment.Entry) {
	for _, s := range h.log.Acknowledged() {
		for i := range s.Entries {
			if s.Entries[i].Stream != entries[0].Stream || s.Entries[i].Base != entries[0].Base {
				continue
			}
			h.layer.mu.Lock()
			body, inline := h.layer.inline[h.node][s.Seq]
			h.layer.mu.Unlock()
			if !inline {
				body, _ = h.store.Body(s.Key)
			}
			o, _, err := segment.Decode(body)
			if err != nil || o.Kind != segment.KindSegment || o.Seq != s.Seq || inline != s.Inline && s.Inline {
				h.t.Errorf("segment %d is acknowledged and not stored: %v", s.Seq, err)
			}
			return
		}
	}
	h.t.Errorf("an acknowledged append is in no acknowledged segment")
}

// told gives the answers so far, after checking that they came in order.
func (h *harness) told() []answered {
	h.mu.Lock()
	defer h.mu.Unlock()
	failed := false
	for i, a := range h.answers {
		require.Equal(h.t, i, a.append, "answers come in the order of appends")
		require.False(h.t, failed && a.err == nil, "an append is acknowledged after an earlier one has failed")
		failed = failed || a.err != nil
	}
	return append([]answered(nil), h.answers...)
}

// acknowledged counts the appends that were acknowledged.
func (h *harness) acknowledged() int {
	n := 0
	for _, a := range h.told() {
		if a.err == nil {
			n++
		}
	}
	return n
}

func (h *harness) close() error {
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	return h.log.Close(ctx)
}

// abandon stops the log where it is, as a crash does.
func (h *harness) abandon() {
	ctx, cancel := context.WithCancel(h.t.Context())
	cancel()
	_ = h.log.Close(ctx)
}

func (h *harness) recoverOptions() RecoverOptions {
	return RecoverOptions{
		Layer: h.layer, Store: h.store, Cluster: testCluster, By: h.by, Dead: h.node, RetryMin: time.Millisecond, RetryMax: 4 * time.Millisecond, Timeout: time.Second,
	}
}

func (h *harness) recover() (Result, error) { return Recover(h.t.Context(), h.recoverOptions()) }

// requireRecovered checks that the streams hold every acknowledged append and, beyond it, at most what was appended, without gaps and with
// the right bytes.
func (h *harness) requireRecovered() {
	acked := map[int64]int64{}
	appended := map[int64]segment.Entry{}
	for _, a := range h.told() {
		for _, e := range a.entries {
			appended[e.Stream<<32|e.Base] = e
			if a.err == nil {
				acked[e.Stream] = e.Last + 1
			}
		}
	}
	for _, s := range testStreams {
		end := int64(0)
		for _, e := range h.layer.entries[s] {
			require.Equal(h.t, end, e.Base, "stream %d has a gap", s)
			end = e.End
			h.requireEntry(e, appended)
		}
		require.GreaterOrEqual(h.t, end, acked[s], "stream %d lost acknowledged records", s)
	}
}

func (h *harness) requireEntry(e layer.ObjectEntry, appended map[int64]segment.Entry) {
	body, ok := h.store.Body(e.Object)
	require.True(h.t, ok, "object %s", e.Object)
	index, err := segment.ParseIndex(body[e.IndexPos:e.IndexPos+e.IndexLen], PartOf(e))
	require.NoError(h.t, err)
	var got []byte
	for _, b := range index.Blocks {
		block := body[b.Pos : b.Pos+b.Len]
		require.NoError(h.t, segment.CheckBlock(b, block))
		got = append(got, block...)
	}
	var want []byte
	for offset := e.Base; offset < e.End; {
		a, ok := appended[e.Stream<<32|offset]
		require.True(h.t, ok, "stream %d has a batch at %d that was not appended there", e.Stream, offset)
		want = append(want, a.Data...)
		offset = a.Last + 1
	}
	require.Equal(h.t, string(want), string(got))
}

// wait waits for a condition.
func (h *harness) wait(what string, condition func() bool) {
	h.t.Helper()
	require.Eventually(h.t, condition, 10*time.Second, time.Millisecond, what)
}

// gate holds calls until it is opened.
type gate struct {
	arrived chan string
	open    chan struct{}
}

func newGate() *gate { return &gate{arrived: make(chan string, 1000), open: make(chan struct{})} }

// pass waits at the gate.
func (g *gate) pass(ctx context.Context, what string) error {
	g.arrived <- what
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *harness) holdPuts(g *gate) {
	h.store.Before(func(ctx context.Context, op, key string) error {
		if op == objects.OpPutIfAbsent || op == objects.OpPut {
			return g.pass(ctx, key)
		}
		return nil
	})
}
