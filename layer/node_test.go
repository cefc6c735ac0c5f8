package layer

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
	"github.com/varvedb/varve/layer/kvtest"
)

func TestRegistrationReplaces(t *testing.T) {
	f := newFixture(t)
	_, err := f.Heartbeat(f.ctx, f.other)
	require.NoError(t, err)
	again := f.register(2)
	require.Equal(t, NodeRef{ID: 2, Epoch: 2}, again)
	beats, err := f.Heartbeats(f.ctx)
	require.NoError(t, err)
	require.Equal(t, map[int64]HeartbeatRow{1: {Epoch: 1}, 2: {Epoch: 2}}, beats)
	require.ErrorIs(t, f.VerifyNode(f.ctx, f.other), ErrReplaced)
	require.NoError(t, f.VerifyNode(f.ctx, again))
	require.NoError(t, f.FenceSelf(f.ctx, f.other), "replaced is as good")
	require.NoError(t, f.VerifyNode(f.ctx, again))
	wals, err := f.WALs(f.ctx, 2)
	require.NoError(t, err)
	require.Len(t, wals, 2)
	require.NotEqual(t, wals[0].Incarnation, wals[1].Incarnation)
	require.EqualValues(t, FirstSegment, wals[1].FirstLive)
	for _, bad := range []NodeInfo{{ID: 0, Slots: 1}, {ID: 1, Slots: -1}, {ID: 1, Slots: 1, Kafka: string(make([]byte, maxNodeText+1))}} {
		_, _, err = f.RegisterNode(f.ctx, bad, FenceBoth, f.request(), f.request(), epochTime)
		require.ErrorIs(t, err, ErrInvalid)
	}
	_, _, err = f.RegisterNode(f.ctx, NodeInfo{ID: 1, Slots: 1}, "neither", f.request(), f.request(), epochTime)
	require.ErrorIs(t, err, ErrInvalid)
}

// What an operator sets stays over registrations, until it is taken back: then the node has what it registered with last.
func TestSlotsOfAnOperatorStay(t *testing.T) {
	f := newFixture(t)
	register := func(slots int) NodeRow {
		row, _, err := f.RegisterNode(f.ctx, NodeInfo{ID: 2, Slots: slots}, FenceBoth, f.request(), f.request(), epochTime)
		require.NoError(t, err)
		return row
	}
	has := func(slots int, own ...int) {
		t.Helper()
		row, err := f.Node(f.ctx, 2)
		require.NoError(t, err)
		require.Equal(t, slots, row.Slots)
		if len(own) == 0 {
			require.Nil(t, row.OwnSlots)
			return
		}
		require.Equal(t, own[0], *row.OwnSlots)
	}
	register(2)
	require.NoError(t, f.ResetSlots(f.ctx, 2), "nothing was set")
	has(2)
	require.NoError(t, f.SetSlots(f.ctx, 2, 2))
	has(2, 2)
	require.NoError(t, f.SetSlots(f.ctx, 2, 0))
	has(0, 2)
	require.Zero(t, register(5).Slots)
	has(0, 5)
	require.NoError(t, f.FenceSelf(f.ctx, NodeRef{ID: 2, Epoch: 3}))
	has(0, 5)
	require.NoError(t, f.ResetSlots(f.ctx, 2))
	has(5)
	require.Equal(t, 3, register(3).Slots)
	require.ErrorIs(t, f.SetSlots(f.ctx, 7, 1), ErrNodeNotFound)
	require.ErrorIs(t, f.ResetSlots(f.ctx, 7), ErrNodeNotFound)
	require.ErrorIs(t, f.SetSlots(f.ctx, 2, -1), ErrInvalid)
	f.healthy()
}

// A fence meant for one epoch and count hits no other.
func TestFenceNodeHitsOnlyWhatWasJudged(t *testing.T) {
	f := newFixture(t)
	beat, err := f.Heartbeat(f.ctx, f.other)
	require.NoError(t, err)
	require.ErrorIs(t, f.FenceNode(f.ctx, f.lease, f.other, beat.Count-1), ErrHeartbeatMoved)
	f.register(2)
	err = f.FenceNode(f.ctx, f.lease, f.other, beat.Count)
	require.ErrorIs(t, err, ErrTargetGone)
	require.NotErrorIs(t, err, ErrReplaced, "the proposer would take it for its own")
	require.ErrorIs(t, f.FenceNode(f.ctx, f.lease, NodeRef{ID: 7, Epoch: 1}, 0), ErrNodeNotFound)
	require.NoError(t, f.FenceNode(f.ctx, f.lease, NodeRef{ID: 2, Epoch: 2}, 0))
	require.ErrorIs(t, f.VerifyNode(f.ctx, NodeRef{ID: 2, Epoch: 2}), ErrFenced)
}

// A fence that commits while a command runs makes the command fail: nothing of it is left.
func TestFenceBetweenReadAndCommit(t *testing.T) {
	f := newFixture(t)
	db := &interrupted{Database: f.db.Database}
	store, err := Open(f.ctx, db, "test")
	require.NoError(t, err)
	db.before = func() { require.NoError(t, f.FenceSelf(f.ctx, f.node)) }
	require.ErrorIs(t, store.PutInline(f.ctx, f.node, 1, []byte("late")), ErrFenced)
	require.Zero(t, f.count(spaceInline))
}

// interrupted does something between the function of a transaction and its commit, once.
type interrupted struct {
	kv.Database
	before func()
}

func (i *interrupted) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	return i.Database.Transact(ctx, func(tr kv.Transaction) error {
		err := fn(tr)
		if before := i.before; before != nil && err == nil {
			i.before = nil
			before()
		}
		return err
	})
}

// PutInline is the hot path: heartbeats, renewals, packs and other segments do not make it run twice, and it reads one row.
func TestPutInlineConflictsWithNothing(t *testing.T) {
	f := newFixture(t)
	f.open(0)
	objects := f.prepare("o")
	for name, other := range map[string]func(){
		"heartbeat":       func() { _, err := f.Heartbeat(f.ctx, f.node); require.NoError(t, err) },
		"renewal":         func() { _, err := f.RenewLease(f.ctx, f.lease); require.NoError(t, err) },
		"another segment": func() { require.NoError(t, f.PutInline(f.ctx, f.node, 2, []byte("x"))) },
		"pack": func() {
			require.NoError(t, f.CommitPack(f.ctx, packOf(f, 1, 2, objects, entry(f.ids[0], 0, 1, "o"))))
		},
		"log record": func() { f.createTable("other", 1) },
	} {
		db := &interrupted{Database: f.db, before: other}
		store, err := New(db, "test")
		require.NoError(t, err)
		runs := 0
		reading := &readCounter{Database: db, runs: &runs}
		store.db = reading
		require.NoError(t, store.PutInline(f.ctx, f.node, 9, []byte("segment")))
		require.Equal(t, 1, runs, name)
		require.EqualValues(t, 1, reading.reads, name)
	}
}

// readCounter counts reads and runs.
type readCounter struct {
	kv.Database
	runs  *int
	reads int64
}

func (r *readCounter) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	return r.Database.Transact(ctx, func(tr kv.Transaction) error {
		*r.runs++
		return fn(countedReads{tr, &r.reads})
	})
}

type countedReads struct {
	kv.Transaction
	reads *int64
}

func (c countedReads) Get(key []byte) kv.Value {
	*c.reads++
	return c.Transaction.Get(key)
}

func TestInlineSegments(t *testing.T) {
	f := newFixture(t)
	big := make([]byte, 2*MaxChunk+5)
	for i := range big {
		big[i] = byte(i % 251)
	}
	want := []InlineSegment{{1, []byte("one")}, {2, big}, {4, []byte("four")}, {5, big[:MaxChunk]}}
	for i := range 30 {
		want = append(want, InlineSegment{int64(6 + i), []byte{byte(i)}})
	}
	for _, s := range want {
		require.NoError(t, f.PutInline(f.ctx, f.node, s.Seq, s.Data))
	}
	got, err := f.InlineSegments(f.ctx, f.node, 1, 10_000_000)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = f.InlineSegments(f.ctx, f.node, 2, 1)
	require.NoError(t, err)
	require.Equal(t, want[1:2], got, "whole segments, at least one")
	got, err = f.InlineSegments(f.ctx, f.node, 1, len(big)+3)
	require.NoError(t, err)
	require.Equal(t, want[:2], got)
	got, err = f.InlineSegments(f.ctx, f.node, 36, 100)
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = f.InlineSegments(f.ctx, f.other, 1, 100)
	require.NoError(t, err)
	require.Empty(t, got)
	require.ErrorIs(t, f.PutInline(f.ctx, f.node, 0, []byte("x")), ErrInvalid)
	require.ErrorIs(t, f.PutInline(f.ctx, f.node, 1, nil), ErrInvalid)
	require.ErrorIs(t, f.PutInline(f.ctx, f.node, 1, make([]byte, MaxInlineSegment+1)), ErrInvalid)
	require.NoError(t, f.PutInline(f.ctx, f.node, 1, make([]byte, MaxInlineSegment)))

	_, err = f.db.Transact(f.ctx, func(tr kv.Transaction) error {
		tr.Clear(f.key(spaceInline, 1, 1, 2, 1))
		return nil
	})
	require.NoError(t, err)
	_, err = f.InlineSegments(f.ctx, f.node, 2, 100)
	require.ErrorIs(t, err, ErrCorruptRow)
	require.ErrorContains(t, err, `("inline", 1, 1, 2, 2)`)
}

func TestLease(t *testing.T) {
	f := newFixture(t)
	seen, err := f.Lease(f.ctx, CoordinatorLease)
	require.NoError(t, err)
	require.False(t, seen.Free())
	_, err = f.RenewLease(f.ctx, f.lease)
	require.NoError(t, err)
	_, err = f.AcquireLease(f.ctx, f.other, CoordinatorLease, seen)
	require.ErrorIs(t, err, ErrNotHolder, "renewed since it was seen")
	seen, err = f.Lease(f.ctx, CoordinatorLease)
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.Renewals)
	taken, err := f.AcquireLease(f.ctx, f.other, CoordinatorLease, seen)
	require.NoError(t, err)
	require.EqualValues(t, 2, taken.Epoch)
	_, err = f.RenewLease(f.ctx, f.lease)
	require.ErrorIs(t, err, ErrNotHolder)
	require.NoError(t, f.ReleaseLease(f.ctx, f.lease), "not its own any more")
	seen, err = f.Lease(f.ctx, CoordinatorLease)
	require.NoError(t, err)
	require.Equal(t, taken, seen)
	require.NoError(t, f.ReleaseLease(f.ctx, taken.Ref()))
	seen, err = f.Lease(f.ctx, CoordinatorLease)
	require.NoError(t, err)
	require.True(t, seen.Free())
	seen, err = f.Lease(f.ctx, "never held")
	require.NoError(t, err)
	require.True(t, seen.Free())
	f.healthy()
}

// Of many candidates that saw the same lease, one gets it.
func TestOneCandidateGetsTheLease(t *testing.T) {
	f := newFixture(t)
	seen, err := f.Lease(f.ctx, CoordinatorLease)
	require.NoError(t, err)
	var won atomic.Int64
	var wait sync.WaitGroup
	for id := range int64(8) {
		ref := f.register(10 + id)
		wait.Go(func() {
			if _, err := f.AcquireLease(f.ctx, ref, CoordinatorLease, seen); err == nil {
				won.Add(1)
			}
		})
	}
	wait.Wait()
	require.EqualValues(t, 1, won.Load())
}

func TestIDs(t *testing.T) {
	f := newFixture(t)
	a, b := NewIDs(f.Store, "producer", 10), NewIDs(f.Store, "producer", 10)
	var mu sync.Mutex
	given := map[int64]bool{}
	var group errgroup.Group
	for _, ids := range []*IDs{a, a, b, b} {
		group.Go(func() error {
			for range 25 {
				got, err := ids.Take(f.ctx, 3)
				if err != nil {
					return err
				}
				mu.Lock()
				for _, id := range got {
					if given[id] {
						t.Errorf("id %d was given twice", id)
					}
					given[id] = true
				}
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Len(t, given, 300)
	next, err := f.Counter(f.ctx, "producer")
	require.NoError(t, err)
	require.GreaterOrEqual(t, next, int64(301))
	f.db.answers = committed
	first, err := f.AllocateIDs(f.ctx, "producer", 5)
	require.NoError(t, err)
	require.GreaterOrEqual(t, first, next, "a lost answer wastes ids and repeats none")
	_, err = f.AllocateIDs(f.ctx, "producer", 0)
	require.ErrorIs(t, err, ErrInvalid)
}

// An older binary refuses metadata of a newer format, at start and when it registers again later.
func TestNewerFormatIsRefused(t *testing.T) {
	f := newFixture(t)
	row, err := f.Format(f.ctx)
	require.NoError(t, err)
	require.Equal(t, FormatRow{Version: FormatVersion}, row)
	require.ErrorIs(t, f.RaiseFormat(f.ctx, FormatVersion+1), ErrInvalid)
	_, err = f.db.Transact(f.ctx, func(tr kv.Transaction) error {
		value, err := json.Marshal(FormatRow{Version: FormatVersion + 1})
		tr.Set(f.key(spaceFormat), value)
		return err
	})
	require.NoError(t, err)
	_, err = Open(f.ctx, f.db, "test")
	require.ErrorIs(t, err, ErrNewerFormat)
	require.ErrorContains(t, err, `cluster "test" has format 2, this binary knows formats up to 1`)
	_, _, err = f.RegisterNode(f.ctx, NodeInfo{ID: 5, Slots: 1}, FenceBoth, f.request(), f.request(), epochTime)
	require.ErrorIs(t, err, ErrNewerFormat)
	require.ErrorIs(t, f.RaiseFormat(f.ctx, FormatVersion), ErrNewerFormat)
}

// Clusters, and other users of the database, do not see each other.
func TestClustersAreApart(t *testing.T) {
	db := kvtest.Open(t)
	a, err := Open(t.Context(), db, "a")
	require.NoError(t, err)
	b, err := Open(t.Context(), db, "b", WithSubspace(tuple.Tuple{"other"}))
	require.NoError(t, err)
	for _, s := range []*Store{a, b} {
		_, _, err := s.RegisterNode(t.Context(), NodeInfo{ID: 1, Slots: 1}, FenceBoth, testUUID(1), testUUID(2), time.Time{})
		require.NoError(t, err)
	}
	require.NoError(t, a.FenceSelf(t.Context(), NodeRef{1, 1}))
	require.NoError(t, b.VerifyNode(t.Context(), NodeRef{1, 1}))
	_, err = Open(t.Context(), db, "")
	require.ErrorIs(t, err, ErrInvalid)
}
