package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/varvedb/varve/nodes/batch"
)

// machine runs an engine and a model of its streams side by side.
type machine struct {
	w    *world
	life *life
	seq  uint64 // makes every value different

	mu      sync.Mutex
	streams []*streamModel
}

// streamModel is what has to be true of a stream.
type streamModel struct {
	known   map[int64][]byte // by offset: acknowledged, or seen by a reader
	end     int64            // all below is known
	start   int64
	nextSeq map[int64]int32 // by producer: of what was acknowledged or sent
	sent    []sentBatch     // by producers, in order; the last few are retried
}

type sentBatch struct {
	producer batch.Producer
	values   [][]byte
	base     int64 // -1: not acknowledged
}

func (m *machine) stream(t *rapid.T) (int, *Stream, *streamModel) {
	i := rapid.IntRange(0, len(m.streams)-1).Draw(t, "stream")
	return i, m.life.streams[i], m.streams[i]
}

// learn notes a record that was acknowledged or seen; it must never have been another.
func (m *machine) learn(model *streamModel, offset int64, v []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, ok := model.known[offset]; ok && !bytes.Equal(before, v) {
		return fmt.Errorf("offset %d was %x and is now %x", offset, before[:16], v[:16])
	}
	model.known[offset] = v
	return nil
}

func (m *machine) values(t *rapid.T, stream int64) [][]byte {
	n := rapid.IntRange(1, 4).Draw(t, "records")
	size := rapid.SampledFrom([]int{20, 200, 3000}).Draw(t, "size")
	values := make([][]byte, n)
	for i := range values {
		m.seq++
		values[i] = value(stream, m.seq, size)
	}
	return values
}

// send appends batches at once, some by producers, and calls each when it is answered.
func (m *machine) send(t *rapid.T, answered func()) {
	_, s, model := m.stream(t)
	var wg sync.WaitGroup
	for range rapid.IntRange(1, 6).Draw(t, "batches") {
		values := m.values(t, s.ID())
		producer := int64(rapid.IntRange(-1, 2).Draw(t, "producer"))
		b := sentBatch{values: values, base: -1}
		a := Append{Batches: []batch.Batch{build(1, nil, values...)}}
		m.mu.Lock()
		at := len(model.sent)
		if producer >= 0 {
			b.producer = batch.Producer{ID: producer, BaseSequence: model.nextSeq[producer]}
			a = Append{Batches: []batch.Batch{build(1, &b.producer, values...)}}
			model.nextSeq[producer] += int32(len(values))
		} else {
			b.producer.ID = -1
		}
		model.sent = append(model.sent, b)
		m.mu.Unlock()
		wg.Add(1)
		s.AppendAsync(a, func(r AppendResult, err error) {
			defer wg.Done()
			if err == nil {
				m.acknowledge(t, model, at, r.Base)
			}
		})
	}
	if answered != nil {
		wg.Wait()
		answered()
	}
}

func (m *machine) acknowledge(t *rapid.T, model *streamModel, at int, base int64) {
	m.mu.Lock()
	b := &model.sent[at]
	moved := b.base >= 0 && b.base != base
	b.base = base
	values := b.values
	m.mu.Unlock()
	if moved {
		t.Errorf("batch %d was acknowledged at two offsets", at)
	}
	for i, v := range values {
		if err := m.learn(model, base+int64(i), v); err != nil {
			t.Error(err)
		}
	}
}

// readAll reads a stream from its start and checks it against the model, which it extends.
func (m *machine) readAll(t *rapid.T, s *Stream, model *streamModel) {
	m.mu.Lock()
	before := maps.Clone(model.known)
	m.mu.Unlock()
	start := s.Start()
	require.GreaterOrEqual(t, start, model.start)
	values, err := readValues(m.w.t.Context(), s, start, rapid.SampledFrom([]int{1, 5000, 1 << 20}).Draw(t, "max bytes"))
	require.NoError(t, err)
	twice := map[string]bool{}
	for i, v := range values {
		require.NoError(t, m.learn(model, start+int64(i), v))
		require.False(t, twice[string(v)], "a record twice")
		twice[string(v)] = true
	}
	end := start + int64(len(values))
	require.GreaterOrEqual(t, end, model.end)
	model.end = end
	for offset := range before {
		require.Less(t, offset, end, "known and gone")
	}
}

// restart begins a new life and compares all streams.
func (m *machine) restart(t *rapid.T) {
	m.life = m.w.start()
	for i, s := range m.life.streams {
		m.readAll(t, s, m.streams[i])
		m.retry(t, s, m.streams[i])
	}
}

// retry sends again what each producer sent last: what is there is recognised, the rest is appended once.
func (m *machine) retry(t *rapid.T, s *Stream, model *streamModel) {
	perProducer := map[int64][]int{}
	for at, b := range model.sent {
		perProducer[b.producer.ID] = append(perProducer[b.producer.ID], at)
	}
	for producer, list := range perProducer {
		if producer < 0 {
			continue
		}
		for _, at := range list {
			b := model.sent[at]
			r, err := s.Append(m.w.t.Context(), Append{Batches: []batch.Batch{build(1, &b.producer, b.values...)}})
			if at < list[max(0, len(list)-rememberedBatches)] && errors.Is(err, ErrDuplicateTooOld) {
				continue // more were in flight than any client has
			}
			require.NoError(t, err)
			m.acknowledge(t, model, at, r.Base)
		}
	}
	model.sent = dropAnonymous(model.sent)
}

// dropAnonymous forgets batches without a producer: nothing more can be asked of them.
func dropAnonymous(sent []sentBatch) []sentBatch {
	var kept []sentBatch
	for _, b := range sent {
		if b.producer.ID >= 0 {
			kept = append(kept, b)
		}
	}
	return kept
}

// Random appends, reads, packs, trims, merges, moves and crashes: nothing acknowledged or seen is ever lost, moved or repeated.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, 2)
		w.wal.InlineMax = rapid.SampledFrom([]int{0, -1, 2000}).Draw(rt, "inline")
		w.wal.SegmentBytes = 16 << 10
		w.options.BlockBytes = 4 << 10
		w.options.PackAloneBytes = 8 << 10
		w.options.PackObjectBytes = 16 << 10
		w.options.PackMaxBytes = 64 << 10
		w.options.PackBytes = 32 << 10
		w.options.PackAdoptBytes = rapid.SampledFrom([]int64{1, 300, 3000, 1 << 20}).Draw(rt, "adopt")
		w.alone = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "alone")
		w.options.MergeRun = 2
		w.options.MergeBelowBytes = 12 << 10
		w.options.MergeObjectBytes = 24 << 10
		w.options.ReadaheadWindow = 16 << 10
		w.options.BlockCacheBytes = int64(rapid.SampledFrom([]int{10 << 10, 1 << 20}).Draw(rt, "cache"))
		w.options.IndexCacheBytes = 4 << 10
		m := &machine{w: w}
		for range w.ids {
			m.streams = append(m.streams, &streamModel{known: map[int64][]byte{}, nextSeq: map[int64]int32{}})
		}
		m.life = w.start()
		defer func() { m.life.crash() }()
		rt.Repeat(m.actions(rt))
		m.life.crash()
		m.restart(rt)
		w.check(t)
	})
}

func (m *machine) actions(t *rapid.T) map[string]func(*rapid.T) {
	ctx := m.w.t.Context()
	return map[string]func(*rapid.T){
		"append": func(t *rapid.T) { m.send(t, func() {}) },
		"append and read": func(t *rapid.T) {
			m.send(t, nil)
			_, s, model := m.stream(t)
			m.readAll(t, s, model)
		},
		"read": func(t *rapid.T) { _, s, model := m.stream(t); m.readAll(t, s, model) },
		"read somewhere": func(t *rapid.T) {
			_, s, model := m.stream(t)
			start, end := s.Start(), s.End()
			from := rapid.Int64Range(start, end).Draw(t, "from")
			values, err := readValues(ctx, s, from, 5000)
			require.NoError(t, err)
			for i, v := range values {
				require.NoError(t, m.learn(model, from+int64(i), v))
			}
		},
		"pack": func(t *rapid.T) {
			for _, s := range m.life.streams {
				require.NoError(t, s.awaitPacked(ctx, s.End()))
			}
		},
		"trim": func(t *rapid.T) {
			_, s, model := m.stream(t)
			to := rapid.Int64Range(0, s.End()).Draw(t, "to")
			start, err := s.Trim(ctx, to)
			require.NoError(t, err)
			require.GreaterOrEqual(t, start, to)
			model.start = max(model.start, start)
		},
		"merge": func(t *rapid.T) { require.NoError(t, m.life.engine.mergeAll(ctx)) },
		"move away and back": func(t *rapid.T) {
			i, s, model := m.stream(t)
			require.NoError(t, m.life.engine.Close(ctx, s))
			require.NoError(t, m.w.layer.CloseStream(ctx, m.life.ref, s.ID(), s.Epoch()))
			m.life.streams[i] = m.life.open(s.ID())
			m.readAll(t, m.life.streams[i], model)
		},
		"move away and back while the others are packed": func(t *rapid.T) {
			i, s, model := m.stream(t)
			var others sync.WaitGroup
			for _, other := range m.life.streams {
				if other != s {
					others.Go(func() { _ = other.awaitPacked(ctx, other.End()) })
				}
			}
			time.Sleep(time.Duration(rapid.IntRange(0, 1000).Draw(t, "µs")) * time.Microsecond)
			require.NoError(t, m.life.engine.Close(ctx, s))
			require.NoError(t, m.w.layer.CloseStream(ctx, m.life.ref, s.ID(), s.Epoch()))
			m.life.streams[i] = m.life.open(s.ID())
			others.Wait()
			require.NoError(t, m.life.engine.Err())
			m.readAll(t, m.life.streams[i], model)
		},
		"crash": func(t *rapid.T) {
			m.life.crash()
			m.restart(t)
		},
		"crash with appends in flight": func(t *rapid.T) {
			m.send(t, nil)
			m.send(t, nil)
			time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(t, "µs")) * time.Microsecond)
			m.life.crash()
			m.restart(t)
		},
		"stop": func(t *rapid.T) {
			m.life.stop()
			m.restart(t)
		},
	}
}
