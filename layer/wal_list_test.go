package layer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeadLogsAreListedUntilTheyAreDone(t *testing.T) {
	f := newFixture(t)
	listed := func() (refs []NodeRef) {
		rows, err := f.DeadWALs(f.ctx, 0)
		require.NoError(t, err)
		for _, row := range rows {
			refs = append(refs, row.Node)
		}
		return refs
	}
	require.Empty(t, listed())
	require.NoError(t, f.FenceSelf(f.ctx, f.other))
	require.Equal(t, []NodeRef{f.other}, listed(), "fenced")
	again := f.register(2)
	require.Equal(t, []NodeRef{f.other}, listed(), "replaced")
	require.NoError(t, f.SealWAL(f.ctx, f.node, f.other, 1))
	require.Equal(t, []NodeRef{f.other}, listed(), "sealed")
	require.NoError(t, f.FinishWAL(f.ctx, f.node, f.other))
	require.Empty(t, listed())
	rows, err := f.WALs(f.ctx, 2)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.True(t, rows[0].Done)
	require.Equal(t, again, rows[1].Node)
}

// More rows than one transaction reads.
func TestManyLogs(t *testing.T) {
	f := newFixture(t)
	const epochs = walsPerRead + 3
	for range epochs {
		f.register(3)
	}
	rows, err := f.WALs(f.ctx, 3)
	require.NoError(t, err)
	require.Len(t, rows, epochs)
	for i, row := range rows {
		require.Equal(t, NodeRef{ID: 3, Epoch: int64(i) + 1}, row.Node)
	}
	dead, err := f.DeadWALs(f.ctx, 0)
	require.NoError(t, err)
	require.Equal(t, rows[:epochs-1], dead)
}

// A log goes when all of it is done with; whoever comes late is refused.
func TestForgottenLog(t *testing.T) {
	f := newFixture(t)
	f.open(1)
	forget := func(ref NodeRef) error { return f.ForgetWAL(f.ctx, f.lease, ref) }
	require.ErrorIs(t, forget(f.other), ErrNotFenced)
	require.NoError(t, f.FenceSelf(f.ctx, f.other))
	require.ErrorIs(t, forget(f.other), ErrWALNotDone)
	require.NoError(t, f.SealWAL(f.ctx, f.node, f.other, 1))
	require.ErrorIs(t, forget(f.other), ErrWALNotDone)
	_, _, err := f.CloseStreamsOf(f.ctx, f.node, f.other, 10)
	require.NoError(t, err)
	require.ErrorIs(t, forget(f.other), ErrWALNotDone)
	require.NoError(t, f.FinishWAL(f.ctx, f.node, f.other))
	require.NoError(t, forget(f.other))
	f.healthy()
	rows, err := f.WALs(f.ctx, 0)
	require.NoError(t, err)
	require.Len(t, rows, 1)

	adoption := Adoption{Dead: f.other, Seq: 1, Next: 2, At: epochTime}
	require.ErrorIs(t, f.Adopt(f.ctx, f.node, adoption), ErrWALNotFound)
	require.ErrorIs(t, f.SealWAL(f.ctx, f.node, f.other, 1), ErrWALNotFound)
	require.ErrorIs(t, f.FinishWAL(f.ctx, f.node, f.other), ErrWALNotFound)
	require.ErrorIs(t, f.PutInline(f.ctx, f.other, 2, []byte("late")), ErrFenced)
	require.ErrorIs(t, f.CommitPack(f.ctx, Pack{Node: f.other, FirstLive: 1, Next: 2, At: epochTime}), ErrFenced)
	require.ErrorIs(t, f.VerifyNode(f.ctx, f.other), ErrFenced)
	f.healthy()
}
