package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/faults"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

// index reads the index entries of a stream.
func (w *world) index(t testing.TB, id int64) []layer.ObjectEntry {
	t.Helper()
	entries, err := w.layer.ObjectEntries(t.Context(), id, 0, 10_000)
	require.NoError(t, err)
	return entries
}

// doomed are the objects in the destroy queue.
func (w *world) doomed(t testing.TB) []string {
	t.Helper()
	queue, err := w.layer.DestroyQueue(t.Context(), 10_000, time.Now().Add(time.Hour))
	require.NoError(t, err)
	var keys []string
	for _, d := range queue {
		keys = append(keys, d.Object)
	}
	return keys
}

// Pieces as large as the option asks for are adopted: no byte is written again, readers find them in memory, trims and merges free their segments,
// and only when nothing points to them.
func TestLargePiecesAreAdopted(t *testing.T) {
	w := newWorld(t, 1)
	w.wal.InlineMax = -1
	w.options.PackAdoptBytes = 2000
	w.options.MergeRun = 2
	l := w.start()
	var want [][]byte
	for range 6 {
		want = append(want, fill(t, l.streams[0], 1, 3, 1000)...)
	}
	segments := l.log.Acknowledged()
	gets := 0
	w.store.Before(func(_ context.Context, op, key string) error {
		switch op {
		case objects.OpGet, objects.OpGetTail:
			gets++
		case objects.OpPut:
			t.Errorf("%s was written", key)
		}
		return nil
	})
	l.pack()
	requireValues(t, want, l.streams[0], 0)
	require.Zero(t, gets, "what was in the log cache is still in memory")
	w.store.Before(nil)
	entries := w.index(t, w.ids[0])
	require.Len(t, entries, 6)
	require.Empty(t, w.doomed(t))
	for i, entry := range entries {
		require.Equal(t, segments[i].Key, entry.Object)
		meta, ok, err := w.layer.ObjectMeta(t.Context(), entry.Object)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, []any{layer.AdoptedSegment, int64(1), false}, []any{meta.Kind, meta.Refs, meta.Held})
	}
	require.NoError(t, l.engine.mergeAll(t.Context()))
	require.Len(t, w.index(t, w.ids[0]), 6, "nor is it merged")

	start, err := l.streams[0].Trim(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, int64(7), start)
	require.Equal(t, []string{entries[0].Object, entries[1].Object}, w.doomed(t))
	requireValues(t, want, l.streams[0], 7)
	w.check(t)

	// From the store, and swept as the log of a dead node.
	dead := l.ref
	l.crash()
	l = w.start()
	require.NoError(t, w.layer.FinishWAL(t.Context(), l.ref, dead))
	for range 2 {
		swept, err := wal.Sweep(t.Context(), wal.SweepOptions{Layer: w.layer, Store: w.store, Cluster: "test", Node: dead})
		require.NoError(t, err)
		require.Zero(t, swept.Deleted)
	}
	requireValues(t, want, l.streams[0], 7)

	// With larger wants, they are small, and are merged like any other.
	l.crash()
	w.options.PackAdoptBytes = 100_000
	l = w.start()
	require.NoError(t, l.engine.mergeAll(t.Context()))
	require.Len(t, w.index(t, w.ids[0]), 1)
	require.Len(t, w.doomed(t), 6)
	requireValues(t, want, l.streams[0], 7)
	w.check(t)
}

// In one segment, what a busy stream has is adopted, and what many others have is packed.
func TestMixedSegments(t *testing.T) {
	w := newWorld(t, 4)
	w.wal.InlineMax = -1
	w.options.PackAdoptBytes = 4000
	l := w.start()
	want := make([][][]byte, 4)
	for range 3 {
		var a Append
		var all sync.WaitGroup
		for i, s := range l.streams {
			size := 50
			if i == 2 {
				size = 6000
			}
			v := value(s.ID(), uint64(len(want[i])), size)
			want[i] = append(want[i], v)
			a = Append{Batches: []batch.Batch{build(1, nil, v)}}
			all.Add(1)
			s.AppendAsync(a, func(AppendResult, error) { all.Done() })
		}
		all.Wait()
	}
	l.pack()
	require.Len(t, dataKeys(w.store), 1)
	for i := range l.streams {
		for _, entry := range w.index(t, w.ids[i]) {
			require.Equal(t, i == 2, wal.IsSegmentKey("test", entry.Object))
		}
		requireValues(t, want[i], l.streams[i], 0)
	}
	w.check(t)
	l.crash()
	l = w.start()
	for i := range l.streams {
		requireValues(t, want[i], l.streams[i], 0)
	}
}

// A stream that closes alone has what it has in stored segments adopted, without a byte written; the log stays as it is, and is packed later,
// or recovered.
func TestCloseAdopts(t *testing.T) {
	for name, crash := range map[string]bool{"then packed": false, "then recovered": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.wal.InlineMax = -1
			l := w.start()
			var want [3][][]byte
			for range 3 {
				for i, s := range l.streams {
					want[i] = append(want[i], fill(t, s, 1, 2, 200)...)
				}
			}
			w.store.Before(func(_ context.Context, op, key string) error {
				if op == objects.OpPut {
					return errors.New("no data objects now")
				}
				return nil
			})
			waiting := l.log.Backlog()
			s := l.streams[1]
			require.NoError(t, l.engine.Close(t.Context(), s))
			require.NoError(t, w.layer.CloseStream(t.Context(), l.ref, s.ID(), s.Epoch()))
			require.Equal(t, waiting, l.log.Backlog())
			require.Empty(t, w.doomed(t))
			for _, entry := range w.index(t, s.ID()) {
				meta, _, err := w.layer.ObjectMeta(t.Context(), entry.Object)
				require.NoError(t, err)
				require.True(t, meta.Held, "it is a live segment, too")
			}
			// It comes back to the same node epoch, and gets more.
			l.streams[1] = l.open(s.ID())
			requireValues(t, want[1], l.streams[1], 0)
			want[1] = append(want[1], fill(t, l.streams[1], 2, 2, 200)...)
			w.check(t)
			w.store.Before(nil)
			if crash {
				l.crash()
				l = w.start()
			}
			l.pack()
			for i, s := range l.streams {
				requireValues(t, want[i], s, 0)
			}
			adopted := w.index(t, w.ids[1])[0].Object
			meta, ok, err := w.layer.ObjectMeta(t.Context(), adopted)
			require.NoError(t, err)
			require.True(t, ok)
			require.False(t, meta.Held)
			require.NotContains(t, w.doomed(t), adopted)
			w.check(t)
			_, err = l.streams[1].Trim(t.Context(), l.streams[1].End())
			require.NoError(t, err)
			require.Contains(t, w.doomed(t), adopted, "freed with its last entry")
			w.check(t)
		})
	}
}

// What a closing stream has inline becomes one object, and the rest is adopted between.
func TestCloseOfInlineAndStoredSegments(t *testing.T) {
	w := newWorld(t, 2)
	w.wal.InlineMax = 1000
	l := w.start()
	var want [2][][]byte
	for _, size := range []int{20, 20, 2000, 20, 2000, 20, 20} {
		for i, s := range l.streams {
			want[i] = append(want[i], fill(t, s, 1, 1, size)...)
		}
	}
	s := l.streams[0]
	require.NoError(t, l.engine.Close(t.Context(), s))
	require.NoError(t, w.layer.CloseStream(t.Context(), l.ref, s.ID(), s.Epoch()))
	require.Len(t, dataKeys(w.store), 1)
	entries := w.index(t, s.ID())
	require.Len(t, entries, 5)
	for i, entry := range entries {
		require.Equal(t, i == 1 || i == 3, wal.IsSegmentKey("test", entry.Object))
	}
	w.check(t)
	l.crash()
	l = w.start()
	for i, s := range l.streams {
		requireValues(t, want[i], s, 0)
	}
	w.check(t)
}

// A stream closes while a pack that has it, too, is being written, and goes on elsewhere or here before that is committed.
func TestCloseWhileAPackIsWritten(t *testing.T) {
	for name, inline := range map[string]int{"stored": -1, "some inline": 1000} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.wal.InlineMax = inline
			l := w.start()
			var want [2][][]byte
			send := func() {
				for _, size := range []int{20, 2000, 20} {
					for i, s := range l.streams {
						want[i] = append(want[i], fill(t, s, 1, 1, size)...)
					}
				}
			}
			send()
			writing, goOn := make(chan string, 1), make(chan struct{})
			var begun atomic.Bool
			w.store.Before(func(_ context.Context, op, key string) error {
				if op == objects.OpPut && begun.CompareAndSwap(false, true) {
					writing <- key
					<-goOn
				}
				return nil
			})
			packed := make(chan error, 1)
			go func() { packed <- l.streams[1].awaitPacked(t.Context(), 3) }()
			key := <-writing
			want[0] = append(want[0], fill(t, l.streams[0], 1, 1, 2000)...)
			s := l.streams[0]
			require.NoError(t, l.engine.Close(t.Context(), s))
			require.NoError(t, w.layer.CloseStream(t.Context(), l.ref, s.ID(), s.Epoch()))
			l.streams[0] = l.open(s.ID())
			requireValues(t, want[0], l.streams[0], 0)
			send()
			close(goOn)
			require.NoError(t, <-packed)
			for _, entry := range w.index(t, s.ID()) {
				require.NotEqual(t, key, entry.Object, "the pack came too late for this stream")
			}
			for i, s := range l.streams {
				requireValues(t, want[i], s, 0)
			}
			w.check(t)
			l.pack()
			l.crash()
			l = w.start()
			for i, s := range l.streams {
				requireValues(t, want[i], s, 0)
			}
			w.check(t)
		})
	}
}

// A pack is cut as it was, however often it is tried and whoever begins to wait meanwhile.
func TestClosersDuringAPackThatIsCommittedInPart(t *testing.T) {
	if testing.Short() {
		t.Skip("opens two thousand streams")
	}
	const streams = 2000
	w := newWorld(t, streams)
	w.wal.InlineMax = -1
	w.alone = 0
	l := w.start()
	for range 3 {
		var all sync.WaitGroup
		for _, s := range l.streams {
			all.Add(1)
			s.AppendAsync(Append{Batches: []batch.Batch{build(1, nil, value(s.ID(), uint64(s.End()), 20))}}, func(AppendResult, error) { all.Done() })
		}
		all.Wait()
	}
	var commits atomic.Int32
	w.db.SetHooks(faults.Hooks{AfterCommit: func(context.Context, kv.Commit) {
		if commits.Add(1) == 2 { // the preparation, and the first part
			w.db.SetOutage(true)
		}
	}})
	var all sync.WaitGroup
	all.Go(func() {
		if err := l.streams[0].awaitPacked(t.Context(), 3); err != nil {
			t.Error(err)
		}
	})
	require.Eventually(t, func() bool { return commits.Load() >= 2 }, 10*time.Second, time.Millisecond)
	for _, s := range l.streams[streams-20:] {
		all.Go(func() {
			if err := l.engine.Close(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return len(l.engine.waiters.closing(false)) == 20 }, 10*time.Second, time.Millisecond)
	w.db.SetOutage(false)
	all.Wait()
	require.NoError(t, l.engine.Err())
	require.Len(t, dataKeys(w.store), 1)
	for _, id := range w.ids {
		entries := w.index(t, id)
		require.Len(t, entries, 1)
		require.Equal(t, int64(3), entries[0].End)
	}
	w.check(t)
}

// Closing adopts what is worth it: a stream's few pieces whatever their size, many only where their index entries are less work than their bytes.
func TestAdoptionRules(t *testing.T) {
	const small, medium, large = 100, 20 << 10, 600 << 10
	for _, c := range []struct {
		name            string
		segments        int
		sizes           []int // of each stream's piece in every segment
		inline, hurried bool
		adopted         []bool
	}{
		{"small", 3, []int{small, small}, false, false, []bool{false, false}},
		{"large", 3, []int{large, large}, false, false, []bool{true, true}},
		{"large among small", 3, []int{small, large, small}, false, false, []bool{false, true, false}},
		{"large, but little of its segments", 3, []int{large, large / 2, large / 2, large / 2}, false, false, []bool{false, false, false, false}},
		{"inline", 3, []int{large}, true, false, []bool{false}},
		{"inline, hurried", 3, []int{large}, true, true, []bool{false}},
		{"few, hurried", freeAdoptions / 2, []int{small, small}, false, true, []bool{true, true}},
		{"many, hurried", freeAdoptions, []int{small, medium}, false, true, []bool{false, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &packPlan{hurried: c.hurried}
			for i := range c.sizes {
				p.streams = append(p.streams, &streamPack{stream: &Stream{id: int64(i + 1)}})
			}
			for n := range c.segments {
				s := &wal.Segment{Seq: int64(n + 1), Inline: c.inline, Stored: true}
				for i, size := range c.sizes {
					s.Entries = append(s.Entries, segment.Entry{Stream: int64(i + 1), Base: int64(n), Last: int64(n), Data: make([]byte, size)})
				}
				body, parts := segment.Encode(segment.Header{Kind: segment.KindSegment, Cluster: "test"}, s.Entries, segment.Options{})
				s.Parts, s.Bytes = parts, int64(len(body))
				for i, entry := range s.Entries {
					p.streams[i].add(entry, s)
				}
			}
			p.decide(DefaultOptions())
			for i, sp := range p.streams {
				require.Equal(t, c.adopted[i], sp.adopt, "stream %d", i)
			}
			p.adopt()
			want := 0
			for _, adopted := range c.adopted {
				if adopted {
					want += c.segments
				}
			}
			require.Len(t, p.entries, want)
		})
	}
}
