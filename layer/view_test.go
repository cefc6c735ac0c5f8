package layer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
)

// A view that runs learns of changes without being asked.
func TestViewFollowsTheLog(t *testing.T) {
	f := newFixture(t)
	view := NewView(f.Store, ViewOptions{Node: 1, Poll: time.Minute}) // the watch alone must do it
	ctx, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return view.Run(ctx) })
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.After(20 * time.Second); ; {
			changed := view.Changed()
			if ok() {
				return
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("the view did not learn: %s", what)
			}
		}
	}
	eventually("the table", func() bool { _, ok := view.Table("t"); return ok })
	require.Len(t, view.Led(), 2)
	f.createTable("later", 1)
	eventually("a new table", func() bool { _, ok := view.Table("later"); return ok && len(view.Led()) == 3 })
	f.open(0)
	eventually("an open stream", func() bool { return view.Led()[0].State == StreamOpen })
	require.NoError(t, f.FenceSelf(f.ctx, f.other))
	eventually("a fence", func() bool { n, _ := view.Node(2); return n.Fenced })
	require.NoError(t, f.DeleteTable(f.ctx, f.node, f.table.ID, f.request()))
	eventually("a deletion", func() bool { _, ok := view.Table("t"); return !ok && len(view.DeletingTables()) == 1 })
	version := view.Version()
	_, _, err := f.DestroyStreams(f.ctx, f.lease, 100)
	require.NoError(t, err)
	eventually("the end of its streams", func() bool { return len(view.Led()) == 1 && len(view.DeletingTables()) == 0 })
	require.Greater(t, view.Version(), version)
	stop()
	require.NoError(t, group.Wait())
}

// Heartbeats, renewals, segments, packs and merges are not in the log.
func TestLogHoldsOnlyChanges(t *testing.T) {
	f := newFixture(t)
	f.open(0)
	before := f.count(spaceLog)
	_, err := f.Heartbeat(f.ctx, f.node)
	require.NoError(t, err)
	_, err = f.RenewLease(f.ctx, f.lease)
	require.NoError(t, err)
	require.NoError(t, f.PutInline(f.ctx, f.node, 1, []byte("x")))
	f.pack(0, 0, 10, "o1")
	require.Equal(t, before, f.count(spaceLog))
}

// A view that fell behind the trimmed log, or whose database went back in time, reads rows anew.
func TestViewReloads(t *testing.T) {
	f := newFixture(t)
	view := NewView(f.Store, ViewOptions{Node: 2})
	require.NoError(t, view.Sync(f.ctx))
	_, err := view.Stream(f.ctx, f.ids[0])
	require.NoError(t, err)
	f.createTable("unseen", 2, 2)
	f.open(0)
	head, err := f.LogHead(f.ctx)
	require.NoError(t, err)
	require.NoError(t, f.TrimLog(f.ctx, f.lease, head))
	require.Zero(t, f.count(spaceLog))
	require.NoError(t, view.Sync(f.ctx))
	_, ok := view.Table("unseen")
	require.True(t, ok)
	require.Len(t, view.Led(), 4)
	row, err := view.Stream(f.ctx, f.ids[0])
	require.NoError(t, err)
	require.Equal(t, StreamOpen, row.State, "what was asked for is not kept over a reload")
	f.healthy()

	view.position.Transaction[0] = 0xf0 // as after a restore
	f.createTable("after", 2)
	require.NoError(t, view.Sync(f.ctx))
	_, ok = view.Table("after")
	require.True(t, ok)
	head, err = f.LogHead(f.ctx)
	require.NoError(t, err)
	require.Equal(t, head, view.position)
}

// Only the own streams and the last asked for are kept.
func TestViewIsBounded(t *testing.T) {
	f := newFixture(t)
	leaders := make([]int64, 50)
	for i := range leaders {
		leaders[i] = 2
	}
	table := f.createTable("many", leaders...)
	view := NewView(f.Store, ViewOptions{Node: 1, MaxStreams: 10})
	require.NoError(t, view.Sync(f.ctx))
	require.Len(t, view.rows.own, 2)
	for bucket := range 50 {
		row, err := view.Bucket(f.ctx, table.ID, bucket)
		require.NoError(t, err)
		require.Equal(t, bucket, row.Bucket)
	}
	require.Len(t, view.rows.asked, 10)
	require.Len(t, view.rows.byBucket, 12)
	reads := 0
	f.Store.db = &countingReads{Database: f.db, n: &reads}
	_, err := view.Bucket(f.ctx, table.ID, 45)
	require.NoError(t, err)
	require.Zero(t, reads, "kept")
	_, err = view.Bucket(f.ctx, table.ID, 3)
	require.NoError(t, err)
	require.Positive(t, reads, "not kept")
	_, err = view.Bucket(f.ctx, table.ID, 50)
	require.ErrorIs(t, err, ErrStreamNotFound)
	_, err = view.Stream(f.ctx, 12345)
	require.ErrorIs(t, err, ErrStreamNotFound)
}

type countingReads struct {
	kv.Database
	n *int
}

func (c *countingReads) ReadTransact(ctx context.Context, fn func(kv.ReadTransaction) error) error {
	*c.n++
	return c.Database.ReadTransact(ctx, fn)
}

// A row that is read while the log moves on is not kept stale.
func TestViewKeepsNoStaleRow(t *testing.T) {
	f := newFixture(t)
	view := NewView(f.Store, ViewOptions{Node: 9})
	require.NoError(t, view.Sync(f.ctx))
	moves := 0
	// After each of the first reads the stream changes, and the view learns of the change before it gets to keep the row.
	hooked := &afterRead{Database: f.db.Database}
	hooked.after = func() {
		if moves++; moves > 4 {
			return
		}
		hooked.off = true
		defer func() { hooked.off = false }()
		_, err := f.LeadBucket(f.ctx, f.lease, f.ids[0], int64(1+moves%2), int64(moves))
		require.NoError(t, err)
		require.NoError(t, view.Sync(f.ctx))
	}
	f.db.Database = hooked
	_, err := view.Stream(f.ctx, f.ids[0])
	require.NoError(t, err)
	require.Equal(t, streamAttempts, moves)
	require.Empty(t, view.rows.asked)
	moves = 100
	got, err := view.Stream(f.ctx, f.ids[0])
	require.NoError(t, err)
	want, err := f.Stream(f.ctx, f.ids[0])
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Len(t, view.rows.asked, 1)
}

type afterRead struct {
	kv.Database
	after func()
	off   bool
}

func (a *afterRead) ReadTransact(ctx context.Context, fn func(kv.ReadTransaction) error) error {
	err := a.Database.ReadTransact(ctx, fn)
	if !a.off {
		a.after()
	}
	return err
}

// A change too large for one record is in several, of one transaction, in order.
func TestLargeChangesAreSplit(t *testing.T) {
	f := newFixture(t)
	f.bounds.buckets = 1000
	position, err := f.LogHead(f.ctx)
	require.NoError(t, err)
	f.createTable("wide", make([]int64, 900)...)
	records, err := f.ReadLog(f.ctx, position, 100)
	require.NoError(t, err)
	require.Greater(t, len(records), 1)
	changes := 0
	for i, r := range records {
		require.Equal(t, "create table", r.Command)
		require.Equal(t, records[0].Versionstamp.Transaction, r.Versionstamp.Transaction)
		require.EqualValues(t, i, r.Versionstamp.User)
		changes += len(r.Changes)
	}
	require.Equal(t, 901, changes)
	head, err := f.LogHead(f.ctx)
	require.NoError(t, err)
	require.Equal(t, records[len(records)-1].Versionstamp, head)
	require.NoError(t, f.Inspect(f.ctx, InspectOptions{Keyspace: spaceLog}, func(r InspectRow) error {
		require.Less(t, len(r.Raw.Value), 100_000)
		return r.Err
	}))
	view := NewView(f.Store, ViewOptions{})
	require.NoError(t, view.Sync(f.ctx))
	row, err := view.Bucket(f.ctx, f.table.ID+1, 899)
	require.NoError(t, err)
	require.Equal(t, 899, row.Bucket, fmt.Sprint(row))
}

// One row of the largest size that is allowed can be logged.
func TestLargestRowIsLogged(t *testing.T) {
	f := newFixture(t)
	options := map[string]string{}
	for i := range 100 {
		options[fmt.Sprintf("%04d", i)] = string(make([]byte, MaxOptionBytes/100-4)) // NUL takes six bytes in JSON
	}
	_, err := f.AlterTable(f.ctx, f.node, f.table.ID, options, nil, f.request())
	require.ErrorIs(t, err, ErrInvalid, "too large once it is encoded")
	for key := range options {
		options[key] = fmt.Sprintf("%0*d", MaxOptionBytes/100-4, 7)
	}
	_, err = f.AlterTable(f.ctx, f.node, f.table.ID, options, nil, f.request())
	require.NoError(t, err)
	view := NewView(f.Store, ViewOptions{})
	require.NoError(t, view.Sync(f.ctx))
	row, ok := view.TableByID(f.table.ID)
	require.True(t, ok)
	require.Equal(t, options, row.Options)
}
