package engine

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/batch"
)

// appendAt appends batches with given timestamps, one record each, and gives the values.
func appendAt(t testing.TB, s *Stream, timestamps ...int64) [][]byte {
	t.Helper()
	var values [][]byte
	for _, ts := range timestamps {
		v := value(s.ID(), uint64(s.End()), 50)
		_, err := s.Append(t.Context(), Append{Batches: []batch.Batch{build(ts, nil, v)}})
		require.NoError(t, err)
		values = append(values, v)
	}
	return values
}

func TestTrim(t *testing.T) {
	w := newWorld(t, 2)
	l := w.start()
	s := l.streams[0]
	want := fill(t, s, 3, 4, 50) // [0, 12)
	l.pack()
	want = append(want, fill(t, s, 3, 4, 50)...) // [12, 24)
	trim := func(to, start int64) {
		t.Helper()
		got, err := s.Trim(t.Context(), to)
		require.NoError(t, err)
		require.Equal(t, start, got)
		require.Equal(t, start, s.Start())
		requireValues(t, want, s, start)
		_, err = s.Read(t.Context(), Read{Offset: start - 1, MaxBytes: 1 << 20})
		var outside *OffsetOutOfRange
		require.ErrorAs(t, err, &outside)
		require.Equal(t, OffsetOutOfRange{Stream: s.ID(), Offset: start - 1, Start: start, End: s.End()}, *outside)
	}
	trim(2, 2)   // within a batch
	trim(1, 2)   // back
	trim(-9, 2)  // nothing
	trim(14, 14) // into the log cache
	require.Len(t, dataKeys(w.store), 2, "deleted by the cleaner, not by the trim")
	entries, err := w.layer.ObjectEntries(t.Context(), s.ID(), 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	want = append(want, fill(t, s, 1, 4, 50)...)
	trim(28, 28) // all
	_, err = s.Trim(t.Context(), 29)
	var outside *OffsetOutOfRange
	require.ErrorAs(t, err, &outside)
	want = append(want, fill(t, s, 2, 1, 50)...)
	requireValues(t, want, s, 28)
	l.crash()
	l = w.start()
	s = l.streams[0]
	require.Equal(t, int64(28), s.Start())
	require.Equal(t, int64(30), s.End())
	requireValues(t, want, s, 28)
	trim(30, 30)
	l.stop()
	l = w.start()
	s = l.streams[0]
	require.Equal(t, int64(30), s.Start(), "an empty stream keeps its place")
	r, err := s.Append(t.Context(), Append{Batches: []batch.Batch{build(1, nil, []byte("next"))}})
	require.NoError(t, err)
	require.Equal(t, int64(30), r.Base)
	w.check(t)
}

func TestTimeRetention(t *testing.T) {
	w := newWorld(t, 2)
	l := w.start()
	s := l.streams[0]
	now := time.UnixMilli(1_000_000_000)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	var want [][]byte
	for _, age := range []time.Duration{5 * time.Hour, 4 * time.Hour, 30 * time.Minute, 6 * time.Hour} {
		want = append(want, appendAt(t, s, ago(age), ago(age+time.Minute))...)
		l.pack()
	}
	want = append(want, appendAt(t, s, ago(9*time.Hour))...) // not packed
	retain := func(retention time.Duration, start int64) {
		t.Helper()
		w.tables.set(TableOptions{Retention: retention, RetentionBytes: -1})
		require.NoError(t, s.retain(t.Context(), now))
		require.Equal(t, start, s.Start())
		requireValues(t, want, s, start)
	}
	retain(-1, 0)
	retain(10*time.Hour, 0)
	retain(4*time.Hour+30*time.Minute, 2)
	retain(time.Hour, 4)
	retain(time.Hour, 4)
	retain(20*time.Minute, 8)
	l.pack()
	retain(20*time.Minute, 9)
	require.Equal(t, int64(9), s.End())
	want = append(want, appendAt(t, s, ago(time.Hour), ago(0))...)
	l.pack()
	retain(20*time.Minute, 9) // an object goes when its newest record is old
	retain(0, 9)
	now = now.Add(time.Second)
	retain(0, 11)
	require.NoError(t, l.streams[1].retain(t.Context(), now), "an empty stream")
	w.check(t)
}

func TestSizeRetention(t *testing.T) {
	w := newWorld(t, 1)
	l := w.start()
	s := l.streams[0]
	var want [][]byte
	for range 6 {
		want = append(want, fill(t, s, 1, 1, 1000)...)
		l.pack()
	}
	entries, err := w.layer.ObjectEntries(t.Context(), s.ID(), 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 6)
	size := entries[0].Len
	retain := func(bytes, start int64) {
		t.Helper()
		w.tables.set(TableOptions{Retention: -1, RetentionBytes: bytes})
		require.NoError(t, s.retain(t.Context(), time.Now()))
		require.Equal(t, start, s.Start())
		requireValues(t, want, s, start)
	}
	retain(6*size, 0)
	retain(5*size+1, 0) // what stays is at least the size
	retain(5*size, 1)
	want = append(want, fill(t, s, 1, 1, 1000)...)
	l.pack()
	retain(5*size, 2)
	l.crash()
	l = w.start()
	s = l.streams[0]
	retain(5*size, 2)
	retain(size, 6)
	retain(0, 7)
	w.check(t)
}

func TestRetentionLoop(t *testing.T) {
	w := newWorld(t, 3)
	w.options.RetentionInterval = 2 * time.Millisecond
	l := w.start()
	for _, s := range l.streams {
		appendAt(t, s, 1000, 2000)
	}
	l.pack()
	w.tables.set(TableOptions{Retention: time.Hour, RetentionBytes: -1})
	for _, s := range l.streams {
		require.NoError(t, s.Wait(t.Context(), 1))
		require.Eventually(t, func() bool { return s.Start() == 2 }, 10*time.Second, time.Millisecond)
	}
}

func TestOffsetFor(t *testing.T) {
	w := newWorld(t, 1)
	w.options.BlockBytes = 512
	l := w.start()
	s := l.streams[0]
	find := func(timestamp, offset, ts int64) {
		t.Helper()
		gotOffset, gotTime, found, err := s.OffsetFor(t.Context(), timestamp)
		require.NoError(t, err)
		require.Equal(t, offset >= 0, found)
		if found {
			require.Equal(t, []int64{offset, ts}, []int64{gotOffset, gotTime})
		}
	}
	largest := func(offset, ts int64) {
		t.Helper()
		gotOffset, gotTime, found, err := s.MaxTimestamp(t.Context())
		require.NoError(t, err)
		require.Equal(t, offset >= 0, found)
		if found {
			require.Equal(t, []int64{offset, ts}, []int64{gotOffset, gotTime})
		}
	}
	find(0, -1, 0)
	largest(-1, 0)
	records := []batch.Record{{Timestamp: 100}, {Timestamp: 300}, {Timestamp: 200}} // 0, 1, 2
	b, _, err := batch.Next(batch.Build(records, batch.BuildOptions{}))
	require.NoError(t, err)
	_, err = s.Append(t.Context(), Append{Batches: []batch.Batch{b}})
	require.NoError(t, err)
	appendAt(t, s, 250, 400) // 3, 4
	all := func() {
		t.Helper()
		find(math.MinInt64, 0, 100)
		find(100, 0, 100)
		find(101, 1, 300)
		find(300, 1, 300)
		find(301, 4, 400)
		find(401, -1, 0)
		largest(4, 400)
	}
	all() // in the log cache
	l.pack()
	all()
	appendAt(t, s, 350, 500)
	for i := range int64(30) {
		appendAt(t, s, 600+i)
	}
	find(401, 6, 500)
	l.pack()
	appendAt(t, s, 10)
	find(401, 6, 500)
	find(615, 22, 615)
	find(630, -1, 0)
	largest(36, 629)
	_, err = s.Trim(t.Context(), 2)
	require.NoError(t, err)
	find(100, 2, 200)
	find(201, 3, 250)
	_, err = s.Trim(t.Context(), 37)
	require.NoError(t, err)
	largest(37, 10)
	find(11, -1, 0)
	l.crash()
	l = w.start()
	s = l.streams[0]
	largest(37, 10)
	find(0, 37, 10)
}

func TestMerge(t *testing.T) {
	w := newWorld(t, 3)
	w.options.BlockBytes = 1 << 10
	w.options.MergeRun = 4
	w.options.MergeBelowBytes = 8 << 10
	l := w.start()
	var want [3][][]byte
	round := func() {
		for i, s := range l.streams[:2] {
			want[i] = append(want[i], fill(t, s, 2, 2, 100)...)
		}
		l.pack()
	}
	entries := func(i int) []layer.ObjectEntry {
		list, err := w.layer.ObjectEntries(t.Context(), w.ids[i], 0, 100)
		require.NoError(t, err)
		return list
	}
	for range 3 {
		round()
	}
	require.NoError(t, l.engine.mergeAll(t.Context()))
	require.Len(t, entries(0), 3, "too few to be worth it")
	for range 3 {
		round()
	}
	requireValues(t, want[0], l.streams[0], 0)
	require.NoError(t, l.engine.mergeAll(t.Context()))
	for i, s := range l.streams[:2] {
		require.Len(t, entries(i), 1)
		require.Equal(t, entries(0)[0].Object, entries(i)[0].Object, "small streams share the merged object")
		requireValues(t, want[i], s, 0)
	}
	w.check(t)
	round()
	want[0] = append(want[0], fill(t, l.streams[0], 1, 1, 9<<10)...) // large: never merged
	l.pack()
	for range 5 {
		round()
	}
	require.NoError(t, l.engine.mergeAll(t.Context()))
	list := entries(0)
	require.Len(t, list, 4, "%+v", list) // merged, small, large, merged
	l.crash()
	l = w.start()
	for i, s := range l.streams {
		requireValues(t, want[i], s, 0)
		requireValues(t, want[i], s, int64(len(want[i])/2))
	}
	w.check(t)
}

// A reader that looked the index up before a merge finds its records in the merged object once the old ones are deleted.
func TestReadAfterMergedObjectsAreDeleted(t *testing.T) {
	w := newWorld(t, 1)
	w.options.MergeRun = 2
	l := w.start()
	s := l.streams[0]
	var want [][]byte
	for range 4 {
		want = append(want, fill(t, s, 1, 2, 100)...)
		l.pack()
	}
	old := dataKeys(w.store)
	stale, _ := l.engine.entries.cache.GetIfPresent(s.ID())
	require.NotEmpty(t, stale)
	require.NoError(t, l.engine.mergeAll(t.Context()))
	w.store.Remove(old...)
	l.engine.blocks.cache.InvalidateAll()
	l.engine.indexes.cache.InvalidateAll()
	l.engine.entries.cache.Set(s.ID(), stale)
	requireValues(t, want, s, 0)
	l.engine.entries.cache.Set(s.ID(), stale)
	l.engine.blocks.cache.InvalidateAll()
	offset, _, found, err := s.OffsetFor(t.Context(), math.MinInt64)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, int64(0), offset)
}

func TestProducersExpire(t *testing.T) {
	w := newWorld(t, 1)
	w.options.MaxProducers = 3
	l := w.start()
	s := l.streams[0]
	send := func(id int64, seq int32) error {
		_, err := s.Append(t.Context(), Append{Batches: []batch.Batch{build(1, &batch.Producer{ID: id, BaseSequence: seq}, value(s.ID(), uint64(id), 20))}})
		return err
	}
	stored := func() int {
		rows, err := w.layer.Producers(t.Context(), s.ID())
		require.NoError(t, err)
		return len(rows)
	}
	require.NoError(t, send(1, 0))
	require.NoError(t, s.expireProducers(t.Context(), time.Now().Add(48*time.Hour)))
	require.NoError(t, errors.Join(send(1, 1)), "not packed, so not forgotten")
	require.ErrorIs(t, send(1, 5), ErrOutOfOrderSequence)
	l.pack()
	require.Equal(t, 1, stored())
	require.NoError(t, s.expireProducers(t.Context(), time.Now()))
	require.ErrorIs(t, send(1, 5), ErrOutOfOrderSequence)
	require.NoError(t, s.expireProducers(t.Context(), time.Now().Add(48*time.Hour)))
	require.Equal(t, 0, stored())
	require.NoError(t, send(1, 5), "a forgotten producer may begin anywhere")
	for id := range int64(5) {
		require.NoError(t, send(10+id, 0))
		time.Sleep(2 * time.Millisecond) // so that their ages differ
	}
	l.pack()
	require.Equal(t, 6, stored())
	require.NoError(t, s.expireProducers(t.Context(), time.Now()))
	require.Equal(t, 3, stored())
	_, ok := s.Producer(14)
	require.True(t, ok)
	_, ok = s.Producer(1)
	require.False(t, ok)
	l.crash()
	l = w.start()
	s = l.streams[0]
	require.ErrorIs(t, send(14, 5), ErrOutOfOrderSequence, "known after a restart")
}
