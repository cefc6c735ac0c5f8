package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv/faults"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/segment"
)

// Whatever the store does short of losing data, everything drains, and what is read is what was written.
func TestStoreFaults(t *testing.T) {
	const seed = 7
	for name, rates := range map[string]objectstest.Rates{
		"every second call is a 503": {Every2nd: true},
		"errors":                     {Err: 0.4},
		"timed out and succeeded":    {ErrAfter: 0.4},
		"stalls":                     {Stall: 0.15},
		"short reads":                {ShortRead: 0.3},
		"corrupt reads":              {CorruptRead: 0.15},
	} {
		t.Run(name, func(t *testing.T) {
			t.Logf("seed %d", seed)
			w := newWorld(t, 2)
			w.wal.InlineMax = -1
			w.wal.PutTimeout = 30 * time.Millisecond
			w.options.PutTimeout, w.options.FetchTimeout = 30*time.Millisecond, 30*time.Millisecond
			w.options.BlockBytes = 2 << 10
			w.options.MergeRun = 2
			w.options.ReadaheadWindow = 8 << 10
			l := w.start()
			w.store.SetFaults(objectstest.Faults{Seed: seed, All: rates})
			var want [2][][]byte
			for range 3 {
				for i, s := range l.streams {
					want[i] = append(want[i], fill(t, s, 10, 3, 200)...)
				}
				l.pack()
			}
			require.Eventually(t, func() bool { return l.engine.mergeAll(t.Context()) == nil }, 10*time.Second, time.Millisecond)
			l.crash()
			w.store.SetFaults(objectstest.Faults{})
			l = w.start()
			w.store.SetFaults(objectstest.Faults{Seed: seed, All: rates})
			for i, s := range l.streams {
				var got [][]byte
				require.Eventually(t, func() bool {
					more, err := readValues(t.Context(), s, int64(len(got)), 4<<10)
					got = append(got, more...)
					return err == nil
				}, 20*time.Second, time.Millisecond)
				require.Equal(t, want[i], got)
			}
			w.store.SetFaults(objectstest.Faults{})
			w.check(t)
		})
	}
}

// While the store is away the log goes inline and packing waits; appends beyond the backlog are refused in a way that can be tried again.
// When the store is back all drains by itself.
func TestStoreOutage(t *testing.T) {
	w := newWorld(t, 1)
	w.wal.BacklogBytes = 64 << 10
	w.options.PackBytes = 16 << 10
	l := w.start()
	s := l.streams[0]
	w.store.SetOutage(true)
	var want [][]byte
	var err error
	for n := 0; err == nil; n++ {
		require.Less(t, n, 1000, "the backlog has no bound")
		v := value(s.ID(), uint64(n), 1000)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err = s.Append(ctx, Append{Batches: []batch.Batch{build(1, nil, v)}})
		cancel()
		if err == nil {
			want = append(want, v)
		}
	}
	require.ErrorIs(t, err, ErrBacklogFull)
	require.Greater(t, len(want), 30)
	requireValues(t, want, s, 0)
	w.store.SetOutage(false)
	want = append(want, fill(t, s, 100, 1, 1000)...) // goes on only as the backlog drains
	requireValues(t, want, s, 0)
	l.pack()
	require.NoError(t, l.engine.Err())
}

// While the metadata is away appends go on through object segments, reads go on, packing and trimming wait; nobody is fenced.
func TestMetadataOutage(t *testing.T) {
	w := newWorld(t, 1)
	l := w.start()
	s := l.streams[0]
	want := fill(t, s, 10, 1, 100)
	l.pack()
	w.db.SetOutage(true)
	for range 10 {
		want = append(want, fill(t, s, 1, 1, 100)...)
	}
	requireValues(t, want, s, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Trim(ctx, 5)
	require.Error(t, err)
	require.Equal(t, int64(0), s.Start())
	waiting := make(chan error, 1)
	go func() { waiting <- s.awaitPacked(t.Context(), int64(len(want))) }()
	w.db.SetOutage(false)
	require.NoError(t, <-waiting)
	requireValues(t, want, s, 0)
	start, err := s.Trim(t.Context(), 5)
	require.NoError(t, err)
	require.Equal(t, int64(5), start)
	require.NoError(t, l.engine.Err())
}

// Metadata that answers late, conflicts and forgets to answer loses nothing.
func TestMetadataFaults(t *testing.T) {
	w := newWorld(t, 2)
	l := w.start()
	a, b := &ledger{id: 1}, &ledger{id: 2}
	w.db.SetRates(faults.Rates{Conflict: 0.2, TooOld: 0.1, UnknownCommitted: 0.2, UnknownLost: 0.1})
	require.NoError(t, crashWork(t.Context(), l, a, b))
	l.crash()
	l = w.start()
	a.verify(t, l.streams[0])
	b.verify(t, l.streams[1])
	w.db.SetRates(faults.Rates{})
	w.check(t)
}

// Every byte of a data object that flips is found and named, and never served; other streams, and other blocks, are served on.
func TestCorruptObjects(t *testing.T) {
	w := newWorld(t, 2)
	w.options.BlockBytes = 1 << 10
	l := w.start()
	want := [2][][]byte{fill(t, l.streams[0], 12, 1, 300), fill(t, l.streams[1], 12, 1, 300)}
	l.pack()
	keys := dataKeys(w.store)
	require.Len(t, keys, 1)
	body, _ := w.store.Body(keys[0])
	entries, err := w.layer.ObjectEntries(t.Context(), w.ids[0], 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	part := entries[0]
	l.crash()
	places := map[string]int64{"first block": part.Pos + 100, "second block": part.Pos + part.Len/2, "index": part.IndexPos + 3}
	for name, at := range places {
		t.Run(name, func(t *testing.T) {
			w.t = t
			require.NoError(t, w.store.CorruptAt(keys[0], at))
			l := w.start()
			defer l.crash()
			got, err := readValues(t.Context(), l.streams[0], 0, 1<<20)
			var corrupt *segment.CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, keys[0], corrupt.Object)
			require.LessOrEqual(t, corrupt.Offset, at)
			require.Less(t, len(got), len(want[0]))
			for i := range got {
				require.Equal(t, want[0][i], got[i], "what came before is right")
			}
			_, err = l.streams[0].Read(t.Context(), Read{Offset: int64(len(got)), MaxBytes: 1 << 20, MinOneBatch: true})
			require.ErrorIs(t, err, segment.ErrCorrupt, "still")
			if name == "first block" {
				last, err := readValues(t.Context(), l.streams[0], 11, 1<<20)
				require.NoError(t, err, "other blocks are served")
				require.Equal(t, want[0][11:], last)
			}
			requireValues(t, want[1], l.streams[1], 0)
			_, _, _, err = l.streams[0].OffsetFor(t.Context(), 0)
			if name != "second block" {
				require.ErrorIs(t, err, segment.ErrCorrupt)
			}
			w.options.MergeRun = 2
			fill(t, l.streams[1], 1, 1, 10)
			want[1] = append(want[1], value(l.streams[1].ID(), 0, 10))
			now, _ := w.store.Body(keys[0])
			require.Len(t, now, len(body), "nothing is deleted because it is corrupt")
			w.store.Set(keys[0], body)
			l.engine.entries.drop(w.ids[0])
			requireValues(t, want[0], l.streams[0], 0) // once an operator has put the bytes back
		})
	}
	t.Run("truncated", func(t *testing.T) {
		w.t = t
		require.NoError(t, w.store.Truncate(keys[0], part.Pos+part.Len/2))
		l := w.start()
		defer l.crash()
		_, err := readValues(t.Context(), l.streams[0], 0, 1<<20)
		require.ErrorIs(t, err, segment.ErrCorrupt)
		w.store.Set(keys[0], body)
	})
	t.Run("missing", func(t *testing.T) {
		w.t = t
		w.store.Remove(keys[0])
		l := w.start()
		defer l.crash()
		_, err := readValues(t.Context(), l.streams[0], 2, 1<<20)
		var missing *MissingObjectError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, MissingObjectError{Stream: w.ids[0], Offset: 2, Object: keys[0]}, *missing)
		require.Equal(t, int64(0), l.streams[0].Start(), "nothing is given up because an object is missing")
		_, err = l.streams[0].Append(t.Context(), Append{Batches: []batch.Batch{build(1, nil, []byte("x"))}})
		require.NoError(t, err)
	})
}

// A write that fails once, at each place, acknowledges nothing that is not durable: here every first try of everything fails.
func TestNoAcknowledgementOfAFailedWrite(t *testing.T) {
	w := newWorld(t, 1)
	w.wal.InlineMax = -1
	l := w.start()
	s := l.streams[0]
	failed := map[string]bool{}
	w.store.Before(func(_ context.Context, op, key string) error {
		if (op == objects.OpPut || op == objects.OpPutIfAbsent) && !failed[key] {
			failed[key] = true
			return errors.New("first try fails")
		}
		return nil
	})
	want := fill(t, s, 1, 3, 100)
	l.pack()
	want = append(want, fill(t, s, 1, 3, 100)...)
	require.GreaterOrEqual(t, len(failed), 2)
	w.store.Before(nil)
	l.crash()
	l = w.start()
	requireValues(t, want, l.streams[0], 0)
}

// A node epoch that was replaced acknowledges nothing more and packs nothing more, whatever it still holds.
func TestReplacedNode(t *testing.T) {
	w := newWorld(t, 1)
	old := w.start()
	s := old.streams[0]
	want := fill(t, s, 5, 1, 100)
	fresh := w.start()
	_, err := s.Append(t.Context(), Append{Batches: []batch.Batch{build(1, nil, []byte("late"))}})
	require.ErrorIs(t, err, ErrFenced)
	<-old.engine.Failed()
	require.ErrorIs(t, old.engine.Err(), ErrFenced)
	require.ErrorIs(t, old.engine.Close(t.Context(), s), ErrFenced)
	requireValues(t, want, fresh.streams[0], 0)
}

// The same when the log has nothing to write: the pack is refused.
func TestReplacedNodeCannotPack(t *testing.T) {
	w := newWorld(t, 1)
	old := w.start()
	s := old.streams[0]
	want := fill(t, s, 5, 1, 100)
	fresh := w.start()
	require.Error(t, s.awaitPacked(t.Context(), s.End()))
	<-old.engine.Failed()
	require.ErrorIs(t, old.engine.Err(), layer.ErrReplaced)
	requireValues(t, want, fresh.streams[0], 0)
	w.check(t)
}

// Objects whose preparation expired before the pack was committed may be deleted at any time: the pack writes others.
func TestPackWritesAnewWhatExpired(t *testing.T) {
	w := newWorld(t, 1)
	l := w.start()
	lease, err := w.layer.AcquireLease(t.Context(), l.ref, layer.CoordinatorLease, layer.LeaseRow{})
	require.NoError(t, err)
	want := fill(t, l.streams[0], 5, 1, 100)
	expired := 0
	w.store.After(func(ctx context.Context, op, key string) error {
		if op == objects.OpPut && expired == 0 {
			n, err := w.layer.ExpirePrepared(ctx, lease.Ref(), time.Now().Add(time.Hour), 10)
			expired += n
			return err
		}
		return nil
	})
	l.pack()
	require.Equal(t, 1, expired)
	require.Len(t, dataKeys(w.store), 2)
	entries, err := w.layer.ObjectEntries(t.Context(), w.ids[0], 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	w.store.Remove(keysBut(dataKeys(w.store), entries[0].Object)...)
	l.engine.blocks.cache.InvalidateAll()
	requireValues(t, want, l.streams[0], 0)
	w.check(t)
}

func keysBut(keys []string, but string) []string {
	var out []string
	for _, k := range keys {
		if k != but {
			out = append(out, k)
		}
	}
	return out
}

// A log that is closed while appends wait does not call them lost: they may be recovered.
func TestClosedLogIsRetryable(t *testing.T) {
	u := newUnit(t)
	got := &answers{}
	u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, -1, 0, 0)}}, got.done)
	u.log.answer(1, wal.ErrClosed)
	require.ErrorIs(t, got.all()[0].err, ErrNotOpen)
	require.NotErrorIs(t, got.all()[0].err, ErrFenced)
}

// A backlog bound below every packing threshold still lets appends through: the loop packs when they wait.
func TestSmallBacklogIsPacked(t *testing.T) {
	w := newWorld(t, 1)
	w.wal.BacklogSegments = 3
	l := w.start()
	var want [][]byte
	for range 8 {
		want = append(want, fill(t, l.streams[0], 1, 1, 100)...)
	}
	requireValues(t, want, l.streams[0], 0)
}
