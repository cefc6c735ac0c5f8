package layer

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func packOf(f *fixture, first, next int64, objects []ObjectMeta, entries ...ObjectEntry) Pack {
	return Pack{Node: f.node, FirstLive: first, Next: next, Objects: objects, Entries: entries, At: epochTime}
}

func TestPackContinuesTheIndex(t *testing.T) {
	f := newFixture(t)
	f.pack(0, 0, 10, "o1")
	s := f.ids[0]
	objects := f.prepare("o2")

	var straddle *StraddleError
	err := f.CommitPack(f.ctx, packOf(f, 2, 3, objects, entry(s, 5, 15, "o2")))
	require.ErrorIs(t, err, ErrStraddles)
	require.True(t, errors.As(err, &straddle))
	require.EqualValues(t, 10, straddle.DurableEnd)
	require.ErrorIs(t, f.CommitPack(f.ctx, packOf(f, 2, 3, objects, entry(s, 11, 15, "o2"))), ErrGap)
	require.ErrorIs(t, f.CommitPack(f.ctx, packOf(f, 3, 4, objects, entry(s, 10, 15, "o2"))), ErrWALMoved)
	require.ErrorIs(t, f.CommitPack(f.ctx, packOf(f, 2, 3, []ObjectMeta{{Object: "never", Kind: DataObject}}, entry(s, 10, 15, "never"))), ErrNotPrepared)
	require.ErrorIs(t, f.CommitPack(f.ctx, packOf(f, 2, 3, objects, entry(f.ids[2], 0, 15, "o2"))), ErrStaleStream, "not open")
	require.ErrorIs(t, f.CommitPack(f.ctx, packOf(f, 2, 3, nil, entry(s, 10, 15, "o2"))), ErrInvalid, "an object that is not listed")
	require.ErrorIs(t, f.CommitPack(f.ctx, Pack{Node: f.node, FirstLive: 2, Next: 3, Producers: []ProducerState{producer(s, 1, 1)}}), ErrInvalid, "a producer without entries")

	require.NoError(t, f.EndStream(f.ctx, f.node, s, 1, 14))
	require.ErrorIs(t, f.CommitPack(f.ctx, packOf(f, 2, 3, objects, entry(s, 10, 15, "o2"))), ErrStreamEnded)
	require.NoError(t, f.CommitPack(f.ctx, packOf(f, 2, 3, objects, entry(s, 0, 10, "o2"), entry(s, 10, 14, "o2"))))
	f.healthy()
	entries, err := f.ObjectEntries(f.ctx, s, 9, 10)
	require.NoError(t, err)
	require.Equal(t, []ObjectEntry{entry(s, 0, 10, "o1"), entry(s, 10, 14, "o2")}, entries)
	entries, err = f.ObjectEntries(f.ctx, s, 10, 10)
	require.NoError(t, err)
	require.Equal(t, []ObjectEntry{entry(s, 10, 14, "o2")}, entries)
	end, err := f.DurableEnd(f.ctx, s)
	require.NoError(t, err)
	require.EqualValues(t, 14, end)
}

// A pack whose streams are all known already, or gone, leaves its objects to be destroyed.
func TestPackWithoutReferencesDoomsItsObjects(t *testing.T) {
	f := newFixture(t)
	f.pack(0, 0, 10, "o1")
	require.NoError(t, f.DeleteTable(f.ctx, f.node, f.table.ID, f.request()))
	objects := f.prepare("o2")
	p := packOf(f, 2, 3, objects, entry(f.ids[0], 10, 20, "o2"), entry(12345, 0, 20, "o2"))
	p.Segments = []string{"segment2"}
	require.NoError(t, f.CommitPack(f.ctx, p))
	require.ElementsMatch(t, []string{"o2", "segment2"}, f.doomed())
	require.Zero(t, f.count(spacePrepared))
	f.healthy()
}

// A pack in parts dies after any number of them; a recoverer takes the same segments one by one. Every record is in the index once, references and producers are right.
func TestPackInPartsDiesAndIsRecovered(t *testing.T) {
	const segments = 4
	for crashAfter := range 9 {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d parts, repeated %t", crashAfter, again), func(t *testing.T) {
				f := newFixture(t)
				f.open(0)
				f.open(2)
				f.bounds.parts = 1
				a, b := f.ids[0], f.ids[2]
				p := packOf(f, 1, 1+segments, f.prepare("pa", "pb"), entry(a, 0, 40, "pa"), entry(b, 0, 20, "pb"), entry(b, 20, 80, "pb"))
				p.Producers = []ProducerState{producer(a, 5, 0, ProducerBatch{FirstSeq: 0, LastSeq: 39, Base: 0, Last: 39}), producer(b, 5, 0, ProducerBatch{Base: 60, Last: 79})}
				p.Segments = []string{"s1", "s2", "s3", "s4"}
				require.NoError(t, f.commitParts(p, crashAfter))
				if again {
					require.NoError(t, f.CommitPack(f.ctx, p))
				}
				f.recover(t, segments, func(k int64) Adoption {
					return Adoption{
						Entries: []ObjectEntry{entry(a, (k-1)*10, k*10, fmt.Sprint("s", k)), entry(b, (k-1)*20, k*20, fmt.Sprint("s", k))},
						Producers: []ProducerState{
							producer(a, 5, 0, ProducerBatch{FirstSeq: (k - 1) * 10, LastSeq: k*10 - 1, Base: (k - 1) * 10, Last: k*10 - 1}),
							producer(b, 5, 0, ProducerBatch{Base: (k - 1) * 20, Last: k*20 - 1})},
					}
				})
				f.requireEnds(t, map[int64]int64{a: 40, b: 80})
				f.healthy()
			})
		}
	}
}

// commitParts commits the first n parts of a pack, or all.
func (f *fixture) commitParts(p Pack, n int) error {
	a := advance{log: p.Node, from: p.FirstLive, next: p.Next, objects: p.Objects, entries: p.Entries, producers: p.Producers, segments: p.Segments, strict: true, at: p.At,
		command: "commit pack", reason: "packed", by: p.Node, allowed: func(t *tx) func() error { return t.node(p.Node).alive }}
	parts := a.split(f.bounds.parts, len(f.prefix))
	for _, part := range parts[:min(n, len(parts))] {
		if err := f.transact(f.ctx, a.command, a.by, func(t *tx) error { return t.advance(a, part) }); err != nil {
			return err
		}
	}
	return nil
}

// recover fences the node and takes its log over by node 2, one segment at a time, then closes its streams.
func (f *fixture) recover(t *testing.T, segments int64, adoption func(seq int64) Adoption) {
	t.Helper()
	require.NoError(t, f.FenceSelf(f.ctx, f.node))
	wal, err := f.WAL(f.ctx, f.node)
	require.NoError(t, err)
	for seq := wal.FirstLive; seq <= segments; seq++ {
		a := adoption(seq)
		a.Dead, a.Seq, a.Next, a.At = f.node, seq, seq+1, epochTime
		a.Objects = []ObjectMeta{{Object: fmt.Sprint("s", seq), Size: 100, Kind: AdoptedSegment}}
		require.NoError(t, f.Adopt(f.ctx, f.other, a))
		require.NoError(t, f.Adopt(f.ctx, f.other, a), "again")
	}
	require.NoError(t, f.SealWAL(f.ctx, f.other, f.node, segments+1))
	_, more, err := f.CloseStreamsOf(f.ctx, f.other, f.node, 100)
	require.NoError(t, err)
	require.False(t, more)
	require.NoError(t, f.FinishWAL(f.ctx, f.other, f.node))
}

func (f *fixture) requireEnds(t *testing.T, ends map[int64]int64) {
	t.Helper()
	for stream, end := range ends {
		got, err := f.DurableEnd(f.ctx, stream)
		require.NoError(t, err)
		require.Equal(t, end, got, "stream %d", stream)
		states, err := f.Producers(f.ctx, stream)
		require.NoError(t, err)
		require.Len(t, states, 1)
		require.Equal(t, end-1, states[0].Batches[len(states[0].Batches)-1].Last, "stream %d: %+v", stream, states)
	}
}

// A grouping of several segments that was adopted in part cannot be followed by another grouping, which says so; single segments always can.
func TestAdoptionOfOtherGroupings(t *testing.T) {
	f := newFixture(t)
	f.open(1)
	f.open(3)
	require.NoError(t, f.FenceSelf(f.ctx, f.other))
	a, b := f.ids[1], f.ids[3]
	group := func(object string, from, to int64) Adoption {
		return Adoption{
			Dead: f.other, Seq: from, Next: to, Objects: f.prepare(object), At: epochTime,
			Entries: []ObjectEntry{entry(a, (from-1)*10, (to-1)*10, object), entry(b, (from-1)*10, (to-1)*10, object)},
		}
	}
	// One of two parts of the grouping 1..2.
	first := group("group12", 1, 3)
	first.Entries = first.Entries[:1]
	work := advance{log: f.other, from: 1, next: 3, objects: first.Objects, entries: first.Entries, at: epochTime, command: "adopt", by: f.node,
		allowed: func(t *tx) func() error { return t.node(f.node).alive }}
	require.NoError(t, f.transact(f.ctx, "adopt", f.node, func(t *tx) error { return t.advance(work, work.split(1, 0)[0]) }))
	f.healthy()

	require.ErrorIs(t, f.Adopt(f.ctx, f.node, group("group13", 1, 4)), ErrStraddles)
	for seq := int64(1); seq < 4; seq++ {
		require.NoError(t, f.Adopt(f.ctx, f.node, group(fmt.Sprint("single", seq), seq, seq+1)))
		f.healthy()
	}
	for _, s := range []int64{a, b} {
		end, err := f.DurableEnd(f.ctx, s)
		require.NoError(t, err)
		require.EqualValues(t, 30, end)
	}
}

// A run of segments that are objects is adopted at once, with the same outcome as one by one: what is in the index already is skipped, what
// got no reference is destroyed.
func TestAdoptRunOfObjects(t *testing.T) {
	f := newFixture(t)
	f.open(1)
	f.open(3)
	require.NoError(t, f.FenceSelf(f.ctx, f.other))
	a, b := f.ids[1], f.ids[3]
	segment := func(key string) ObjectMeta { return ObjectMeta{Object: key, Size: 1, Kind: AdoptedSegment} }
	first := Adoption{Dead: f.other, Seq: 1, Next: 2, Objects: []ObjectMeta{segment("s1")}, Entries: []ObjectEntry{entry(a, 0, 10, "s1")}, At: epochTime}
	require.NoError(t, f.Adopt(f.ctx, f.node, first))
	run := Adoption{
		Dead: f.other, Seq: 2, Next: 5, Objects: []ObjectMeta{segment("s2"), segment("s3"), segment("s4")}, At: epochTime,
		Entries:   []ObjectEntry{entry(a, 0, 10, "s2"), entry(b, 0, 5, "s3"), entry(a, 10, 20, "s4"), entry(b, 5, 9, "s4")},
		Producers: []ProducerState{producer(a, 7, 0, ProducerBatch{FirstSeq: 10, LastSeq: 19, Base: 10, Last: 19})},
	}
	for _, bound := range []int{1, defaultBounds().parts} { // in parts, and again at once
		f.bounds.parts = bound
		require.NoError(t, f.Adopt(f.ctx, f.node, run))
		f.healthy()
		for stream, want := range map[int64]int64{a: 20, b: 9} {
			end, err := f.DurableEnd(f.ctx, stream)
			require.NoError(t, err)
			require.Equal(t, want, end)
		}
		require.Equal(t, []string{"s2"}, f.doomed())
	}
	wal, err := f.WAL(f.ctx, f.other)
	require.NoError(t, err)
	require.EqualValues(t, 5, wal.FirstLive)
}

func TestAdoptIsConditional(t *testing.T) {
	f := newFixture(t)
	row := f.open(1)
	a := Adoption{Dead: f.other, Seq: 1, Next: 2, Objects: []ObjectMeta{{Object: "s1", Size: 1, Kind: AdoptedSegment}}, Entries: []ObjectEntry{entry(row.ID, 0, 10, "s1")}, At: epochTime}
	require.ErrorIs(t, f.Adopt(f.ctx, f.node, a), ErrNotFenced)
	require.ErrorIs(t, f.SealWAL(f.ctx, f.node, f.other, 1), ErrNotFenced)
	_, _, err := f.CloseStreamsOf(f.ctx, f.node, f.other, 1)
	require.ErrorIs(t, err, ErrNotFenced)
	require.ErrorIs(t, f.ConfirmFenced(f.ctx, f.other), ErrNotFenced)

	f.register(2) // replaced is as good as fenced
	require.NoError(t, f.ConfirmFenced(f.ctx, f.other))
	require.ErrorIs(t, f.ConfirmFenced(f.ctx, NodeRef{ID: 2, Epoch: 3}), ErrNodeNotFound)
	_, _, err = f.CloseStreamsOf(f.ctx, f.node, f.other, 1)
	require.ErrorIs(t, err, ErrWALNotSealed)
	require.NoError(t, f.Adopt(f.ctx, f.node, a))
	gap := a
	gap.Seq, gap.Next, gap.Objects = 2, 3, []ObjectMeta{{Object: "s2", Size: 1, Kind: AdoptedSegment}}
	gap.Entries = []ObjectEntry{entry(row.ID, 11, 20, "s2")}
	require.ErrorIs(t, f.Adopt(f.ctx, f.node, gap), ErrGap)
	gap.Seq, gap.Next = 3, 4
	require.ErrorIs(t, f.Adopt(f.ctx, f.node, gap), ErrWALMoved)
	require.ErrorIs(t, f.SealWAL(f.ctx, f.node, f.other, 3), ErrWALMoved)
	require.ErrorIs(t, f.FinishWAL(f.ctx, f.node, f.other), ErrWALNotSealed)
	require.NoError(t, f.SealWAL(f.ctx, f.node, f.other, 2))
	require.ErrorIs(t, f.SealWAL(f.ctx, f.node, f.other, 3), ErrWALSealed)
	gap.Seq, gap.Next = 2, 3
	require.ErrorIs(t, f.Adopt(f.ctx, f.node, gap), ErrWALSealed)
	require.ErrorIs(t, f.FinishWAL(f.ctx, f.node, f.other), ErrStreamOpen)
	closed, more, err := f.CloseStreamsOf(f.ctx, f.node, f.other, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{row.ID}, closed)
	require.False(t, more)
	require.NoError(t, f.FinishWAL(f.ctx, f.node, f.other))
	f.healthy()
}

// A segment without records of open streams is destroyed when its log gets on; a held one lives until then, even without references.
func TestAdoptedSegmentLivesWhileItIsLive(t *testing.T) {
	f := newFixture(t)
	f.open(0)
	f.open(2)
	a, b := f.ids[0], f.ids[2]
	segment := []ObjectMeta{{Object: "s1", Size: 100, Kind: AdoptedSegment}}

	// Closing stream a adopts its part of the live segment 1; then a is trimmed to nothing.
	closing := packOf(f, 1, 1, segment, entry(a, 0, 10, "s1"))
	require.NoError(t, f.CommitPack(f.ctx, closing))
	require.NoError(t, f.CommitPack(f.ctx, closing), "again")
	f.healthy()
	row, more, err := f.TrimStream(f.ctx, f.node, a, 1, 10)
	require.NoError(t, err)
	require.False(t, more)
	require.EqualValues(t, 10, row.Start)
	require.NoError(t, f.CloseStream(f.ctx, f.node, a, 1))
	require.Empty(t, f.doomed(), "the segment still holds records of stream b")
	f.healthy()

	meta, ok, err := f.ObjectMeta(f.ctx, "s1")
	require.NoError(t, err)
	require.True(t, ok && meta.Held && meta.Refs == 0, "%+v", meta)

	// Packing the rest ends that.
	p := packOf(f, 1, 2, f.prepare("o1"), entry(a, 0, 10, "o1"), entry(b, 0, 5, "o1"))
	p.Segments = []string{"s1"}
	require.NoError(t, f.CommitPack(f.ctx, p))
	require.Equal(t, []string{"s1"}, f.doomed())
	f.healthy()
}

// While the parts of a pack are committed, its objects are kept by their preparation alone.
func TestObjectSurvivesBetweenParts(t *testing.T) {
	f := newFixture(t)
	f.open(0)
	f.open(2)
	f.bounds.parts = 1
	a, b := f.ids[0], f.ids[2]
	p := packOf(f, 1, 2, f.prepare("o1"), entry(a, 0, 10, "o1"), entry(b, 0, 10, "o1"))
	require.NoError(t, f.commitParts(p, 1))
	_, _, err := f.TrimStream(f.ctx, f.node, a, 1, 10)
	require.NoError(t, err)
	require.Empty(t, f.doomed())
	f.healthy()
	require.NoError(t, f.CommitPack(f.ctx, p))
	require.Empty(t, f.doomed())
	f.healthy()
	_, _, err = f.TrimStream(f.ctx, f.node, b, 1, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"o1"}, f.doomed())
	f.healthy()
}

// Expiry of a preparation between parts does not touch an object that is referenced, and voids one that is not.
func TestExpiryDuringPack(t *testing.T) {
	f := newFixture(t)
	f.open(0)
	f.open(2)
	f.bounds.parts = 1
	a, b := f.ids[0], f.ids[2]
	p := packOf(f, 1, 2, f.prepare("o1", "o2"), entry(a, 0, 10, "o1"), entry(b, 0, 10, "o2"))
	require.NoError(t, f.commitParts(p, 1))
	n, err := f.ExpirePrepared(f.ctx, f.lease, epochTime.Add(1), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n, "that of the object whose entries are all in has ended")
	require.Equal(t, []string{"o2"}, f.doomed())
	require.ErrorIs(t, f.CommitPack(f.ctx, p), ErrNotPrepared)
	f.healthy()
	p = packOf(f, 1, 2, f.prepare("o3"), entry(a, 0, 10, "o3"), entry(b, 0, 10, "o3"))
	require.NoError(t, f.CommitPack(f.ctx, p))
	f.healthy()
}

// Records of a stream that somebody else has open are never put into its index: a pack is refused, an adoption drops them.
func TestForeignStreams(t *testing.T) {
	f := newFixture(t)
	f.open(1)
	f.open(3)
	third := f.register(3)
	require.ErrorIs(t, f.CommitPack(f.ctx, packOf(f, 1, 2, f.prepare("o"), entry(f.ids[1], 0, 10, "o"))), ErrStaleStream)
	require.NoError(t, f.FenceSelf(f.ctx, third))
	require.NoError(t, f.Adopt(f.ctx, f.node, Adoption{
		Dead: third, Seq: 1, Next: 2, Objects: []ObjectMeta{{Object: "s1", Kind: AdoptedSegment}}, Entries: []ObjectEntry{entry(f.ids[1], 0, 10, "s1")}, At: epochTime,
	}))
	require.Equal(t, []string{"s1"}, f.doomed())
	end, err := f.DurableEnd(f.ctx, f.ids[1])
	require.NoError(t, err)
	require.Zero(t, end)
	f.healthy()
}

// States of producers grow by what each segment or pack says of them.
func TestProducerStatesAreMerged(t *testing.T) {
	f := newFixture(t)
	f.open(0)
	s := f.ids[0]
	var want []ProducerBatch
	for i := range int64(7) {
		batch := ProducerBatch{FirstSeq: i, LastSeq: i, Base: i, Last: i}
		want = append(want, batch)
		p := packOf(f, i+1, i+2, f.prepare(fmt.Sprint("o", i)), entry(s, i, i+1, fmt.Sprint("o", i)))
		p.Producers = []ProducerState{producer(s, 7, 0, batch)}
		require.NoError(t, f.CommitPack(f.ctx, p))
	}
	states, err := f.Producers(f.ctx, s)
	require.NoError(t, err)
	require.Equal(t, []ProducerState{producer(s, 7, 0, want[2:]...)}, states)
	f.healthy()
}
