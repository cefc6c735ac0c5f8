package layer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStreamLife(t *testing.T) {
	f := newFixture(t)
	s := f.ids[0]
	_, err := f.OpenStream(f.ctx, f.other, s, 1)
	require.ErrorIs(t, err, ErrStaleLeader, "led by another")
	_, err = f.OpenStream(f.ctx, f.node, s, 2)
	require.ErrorIs(t, err, ErrStaleLeader, "at another epoch")
	row := f.open(0)
	require.Equal(t, StreamRow{ID: s, Table: f.table.ID, State: StreamOpen, Leader: 1, LeaderEpoch: 1, Epoch: 1, OpenBy: f.node}, row)

	// The coordinator moves it while it is open: the new leader must wait, the old one may go on until it closes.
	row, err = f.LeadBucket(f.ctx, f.lease, s, 2, 1)
	require.NoError(t, err)
	require.EqualValues(t, 2, row.LeaderEpoch)
	require.Equal(t, f.node, row.OpenBy)
	_, err = f.LeadBucket(f.ctx, f.lease, s, 1, 1)
	require.ErrorIs(t, err, ErrStaleLeader)
	_, err = f.OpenStream(f.ctx, f.other, s, 2)
	require.ErrorIs(t, err, ErrStreamOpen)
	_, err = f.LeadAgain(f.ctx, f.other, s, 2)
	require.ErrorIs(t, err, ErrStreamOpen)
	f.pack(0, 0, 10, "o1")
	require.ErrorIs(t, f.CloseStream(f.ctx, f.other, s, 1), ErrStaleStream)
	require.ErrorIs(t, f.CloseStream(f.ctx, f.node, s, 2), ErrStaleStream)
	require.NoError(t, f.CloseStream(f.ctx, f.node, s, 1))

	// After the close everything of the old epoch is refused.
	_, _, err = f.TrimStream(f.ctx, f.node, s, 1, 5)
	require.ErrorIs(t, err, ErrStaleStream)
	require.ErrorIs(t, f.EndStream(f.ctx, f.node, s, 1, 10), ErrStaleStream)
	require.ErrorIs(t, f.ForgetProducers(f.ctx, f.node, s, 1, []int64{1}), ErrStaleStream)
	row, err = f.OpenStream(f.ctx, f.other, s, 2)
	require.NoError(t, err)
	require.ErrorIs(t, f.CloseStream(f.ctx, f.node, s, 1), ErrStaleStream)

	// A restarted leader needs a fresh epoch.
	require.NoError(t, f.CloseStream(f.ctx, f.other, s, 2))
	_, err = f.OpenStream(f.ctx, f.other, s, 2)
	require.ErrorIs(t, err, ErrStaleLeader)
	row, err = f.LeadAgain(f.ctx, f.other, s, 2)
	require.NoError(t, err)
	_, err = f.OpenStream(f.ctx, f.other, s, row.LeaderEpoch)
	require.NoError(t, err)
	f.healthy()

	require.NoError(t, f.FenceSelf(f.ctx, f.other))
	_, err = f.LeadBucket(f.ctx, f.lease, s, 2, 3)
	require.ErrorIs(t, err, ErrTargetGone)
	require.NotErrorIs(t, err, ErrFenced)
	_, err = f.LeadBucket(f.ctx, f.lease, s, 77, 3)
	require.ErrorIs(t, err, ErrTargetGone)
	_, err = f.Stream(f.ctx, 999)
	require.ErrorIs(t, err, ErrStreamNotFound)
}

func TestIndexesOfStreams(t *testing.T) {
	f := newFixture(t)
	f.open(0)
	ids := func(rows []StreamRow, err error) (out []int64) {
		require.NoError(t, err)
		for _, r := range rows {
			out = append(out, r.ID)
		}
		return out
	}
	require.Equal(t, []int64{f.ids[0], f.ids[2]}, ids(f.Owned(f.ctx, 1, 0, 10)))
	require.Equal(t, []int64{f.ids[2]}, ids(f.Owned(f.ctx, 1, f.ids[0], 10)))
	require.Equal(t, []int64{f.ids[0]}, ids(f.Owned(f.ctx, 1, 0, 1)))
	require.Equal(t, []int64{f.ids[0]}, ids(f.Opened(f.ctx, f.node, 0, 10)))
	require.Empty(t, ids(f.Opened(f.ctx, f.other, 0, 10)))
	f.createTable("orphans", 0, 0, 1)
	require.Len(t, ids(f.Owned(f.ctx, 0, 0, 10)), 2)
	loads, err := f.Loads(f.ctx)
	require.NoError(t, err)
	require.Equal(t, map[int64]int64{0: 2, 1: 3, 2: 2}, loads)
}

func TestTransfer(t *testing.T) {
	f := newFixture(t)
	s := f.ids[0]
	_, err := f.BeginTransfer(f.ctx, f.node, s, 1, 1, epochTime)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = f.BeginTransfer(f.ctx, f.node, s, 9, 1, epochTime)
	require.ErrorIs(t, err, ErrTargetGone)
	_, err = f.BeginTransfer(f.ctx, f.node, s, 2, 7, epochTime)
	require.ErrorIs(t, err, ErrStaleLeader)
	f.open(0)
	plan, err := f.BeginTransfer(f.ctx, f.node, s, 2, 1, epochTime)
	require.NoError(t, err)
	require.Equal(t, TransferRow{Stream: s, From: 1, To: 2, LeaderEpoch: 1, At: epochTime}, plan)
	third := f.register(3)
	_, err = f.BeginTransfer(f.ctx, f.node, s, 3, 1, epochTime)
	require.ErrorIs(t, err, ErrTransferPending)
	_, err = f.CompleteTransfer(f.ctx, f.node, s, 1)
	require.ErrorIs(t, err, ErrStreamOpen)
	require.NoError(t, f.CloseStream(f.ctx, f.node, s, 1))
	_, err = f.CompleteTransfer(f.ctx, third, s, 1)
	require.ErrorIs(t, err, ErrTransferNotFound, "only the source completes")
	row, err := f.CompleteTransfer(f.ctx, f.node, s, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 2}, []int64{row.Leader, row.LeaderEpoch})
	f.healthy()
	_, err = f.OpenStream(f.ctx, f.other, s, 2)
	require.NoError(t, err)

	// A change of leader ends a plan; a target that died is noticed.
	_, err = f.BeginTransfer(f.ctx, f.other, s, 3, 2, epochTime)
	require.NoError(t, err)
	require.NoError(t, f.CloseStream(f.ctx, f.other, s, 2))
	require.NoError(t, f.FenceSelf(f.ctx, third))
	_, err = f.CompleteTransfer(f.ctx, f.other, s, 2)
	require.ErrorIs(t, err, ErrTargetGone)
	_, err = f.LeadBucket(f.ctx, f.lease, s, 1, 2)
	require.NoError(t, err)
	pending, err := f.Transfers(f.ctx)
	require.NoError(t, err)
	require.Empty(t, pending)
	f.healthy()
}

func TestEndStream(t *testing.T) {
	f := newFixture(t)
	f.pack(0, 0, 10, "o1")
	s := f.ids[0]
	require.ErrorIs(t, f.EndStream(f.ctx, f.node, s, 1, 9), ErrInvalid, "below the durable end")
	require.NoError(t, f.EndStream(f.ctx, f.node, s, 1, 12), "records up to there are in the log")
	require.ErrorIs(t, f.EndStream(f.ctx, f.node, s, 1, 13), ErrStreamEnded)
	f.pack(0, 10, 12, "o2")
	f.healthy()
}

func TestTrimStream(t *testing.T) {
	f := newFixture(t)
	f.bounds.trimEntries = 2
	s := f.ids[0]
	for i := range int64(5) {
		f.pack(0, i*10, (i+1)*10, fmt.Sprint("o", i))
	}
	row, more, err := f.TrimStream(f.ctx, f.node, s, 1, 45)
	require.NoError(t, err)
	require.EqualValues(t, 45, row.Start, "at once")
	require.True(t, more)
	f.healthy()
	row, more, err = f.TrimStream(f.ctx, f.node, s, 1, 1)
	require.NoError(t, err)
	require.EqualValues(t, 45, row.Start, "never back")
	require.False(t, more)
	require.Equal(t, []string{"o0", "o1", "o2", "o3"}, f.doomed())
	f.healthy()
	row, _, err = f.TrimStream(f.ctx, f.node, s, 1, 1000)
	require.NoError(t, err)
	require.EqualValues(t, 50, row.Start, "cut to the durable end")
	end, err := f.DurableEnd(f.ctx, s)
	require.NoError(t, err)
	require.EqualValues(t, 50, end, "which the trim does not move")
	f.pack(0, 50, 60, "o5")
	f.healthy()
}

// An object that several streams share dies with the last reference.
func TestSharedObjectDiesWithItsLastReference(t *testing.T) {
	f := newFixture(t)
	f.open(0)
	f.open(2)
	a, b := f.ids[0], f.ids[2]
	require.NoError(t, f.CommitPack(f.ctx, packOf(f, 1, 2, f.prepare("o"), entry(a, 0, 10, "o"), entry(b, 0, 10, "o"))))
	_, _, err := f.TrimStream(f.ctx, f.node, a, 1, 10)
	require.NoError(t, err)
	f.healthy()
	require.Empty(t, f.doomed())
	_, _, err = f.TrimStream(f.ctx, f.node, b, 1, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"o"}, f.doomed())
	f.healthy()
}

// Metadata that is missing destroys nothing.
func TestTrimRefusesMissingMeta(t *testing.T) {
	f := newFixture(t)
	f.pack(0, 0, 10, "o1")
	f.pack(0, 10, 20, "o2")
	require.NoError(t, f.transact(f.ctx, "break", f.node, func(t *tx) error {
		t.Clear(f.key(spaceMeta, "o1"))
		return nil
	}))
	_, _, err := f.TrimStream(f.ctx, f.node, f.ids[0], 1, 15)
	require.ErrorIs(t, err, ErrCorruptRow)
	require.ErrorContains(t, err, `"o1"`)
	require.Empty(t, f.doomed())
}

func TestMergeEntries(t *testing.T) {
	f := newFixture(t)
	s := f.ids[0]
	var old []ObjectEntry
	for i := range int64(4) {
		f.pack(0, i*10, (i+1)*10, fmt.Sprint("o", i))
		old = append(old, entry(s, i*10, (i+1)*10, fmt.Sprint("o", i)))
	}
	object := f.prepare("m")[0]
	merge := func(old []ObjectEntry, merged ObjectEntry) error {
		return f.MergeEntries(f.ctx, f.node, s, 1, old, merged, object, epochTime)
	}
	require.ErrorIs(t, merge(old[1:3], entry(s, 10, 40, "m")), ErrInvalid)
	require.ErrorIs(t, merge([]ObjectEntry{old[0], old[2]}, entry(s, 0, 30, "m")), ErrInvalid)
	wrong := entry(s, 10, 20, "other")
	require.ErrorIs(t, merge([]ObjectEntry{wrong, old[2]}, entry(s, 10, 30, "m")), ErrEntriesChanged)
	require.NoError(t, merge(old[1:3], entry(s, 10, 30, "m")))
	f.healthy()
	require.Equal(t, []string{"o1", "o2"}, f.doomed())
	require.Zero(t, f.count(spacePrepared))
	entries, err := f.ObjectEntries(f.ctx, s, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []ObjectEntry{old[0], entry(s, 10, 30, "m"), old[3]}, entries)

	// Trimmed meanwhile: void.
	f.prepare("m2")
	_, _, err = f.TrimStream(f.ctx, f.node, s, 1, 30)
	require.NoError(t, err)
	err = f.MergeEntries(f.ctx, f.node, s, 1, []ObjectEntry{entry(s, 10, 30, "m"), old[3]}, entry(s, 10, 40, "m2"), ObjectMeta{Object: "m2", Kind: DataObject}, epochTime)
	require.ErrorIs(t, err, ErrEntriesChanged)
	require.ErrorIs(t, f.MergeEntries(f.ctx, f.node, s, 1, old[3:], entry(s, 30, 40, "m3"), ObjectMeta{Object: "m3", Kind: DataObject}, epochTime), ErrNotPrepared)
	f.healthy()
}

func TestForgetProducers(t *testing.T) {
	f := newFixture(t)
	f.open(0)
	s := f.ids[0]
	p := packOf(f, 1, 2, f.prepare("o"), entry(s, 0, 10, "o"))
	p.Producers = []ProducerState{producer(s, -5, 0, ProducerBatch{Base: 0, Last: 4}), producer(s, 6, 2, ProducerBatch{Base: 5, Last: 9})}
	require.NoError(t, f.CommitPack(f.ctx, p))
	states, err := f.Producers(f.ctx, s)
	require.NoError(t, err)
	require.Equal(t, p.Producers, states)
	require.NoError(t, f.ForgetProducers(f.ctx, f.node, s, 1, []int64{-5, 77}))
	states, err = f.Producers(f.ctx, s)
	require.NoError(t, err)
	require.Equal(t, p.Producers[1:], states)
}
