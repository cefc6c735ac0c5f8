package layer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTableLife(t *testing.T) {
	f := newFixture(t)
	byName, err := f.TableByName(f.ctx, "t")
	require.NoError(t, err)
	require.Equal(t, f.table, byName)
	_, _, err = f.CreateTable(f.ctx, f.other, CreateTable{Name: "t", UUID: f.request(), Kind: LogTable, Buckets: 1, RequestID: f.request(), At: epochTime})
	require.ErrorIs(t, err, ErrTableExists)
	for _, bad := range []CreateTable{
		{}, {Name: "x", Kind: "kv", Buckets: 1}, {Name: "x", Kind: LogTable}, {Name: "x", Kind: LogTable, Buckets: MaxBuckets + 1},
		{Name: strings.Repeat("x", MaxTableName+1), Kind: LogTable, Buckets: 1}, {Name: "x", Kind: LogTable, Buckets: 1, Leaders: []int64{1, 2}},
		{Name: "x", Kind: LogTable, Buckets: 1, Options: map[string]string{"k": strings.Repeat("x", MaxOptionBytes)}},
	} {
		bad.UUID, bad.RequestID = f.request(), f.request()
		_, _, err = f.CreateTable(f.ctx, f.node, bad)
		require.ErrorIs(t, err, ErrInvalid, "%+v", bad)
	}

	row, err := f.AlterTable(f.ctx, f.node, f.table.ID, map[string]string{"a": "1", "b": "2"}, nil, testUUID(500))
	require.NoError(t, err)
	_, err = f.AlterTable(f.ctx, f.node, f.table.ID, map[string]string{"a": "3"}, []string{"b"}, f.request())
	require.NoError(t, err)
	row, err = f.AlterTable(f.ctx, f.node, f.table.ID, map[string]string{"a": "1", "b": "2"}, nil, testUUID(500))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "3"}, row.Options, "a repeated request undoes nothing")

	_, streams, err := f.AddBuckets(f.ctx, f.node, f.table.ID, 6, []int64{2, 1}, f.request())
	require.NoError(t, err)
	require.Len(t, streams, 6)
	require.Equal(t, []int64{2, 1}, []int64{streams[4].Leader, streams[5].Leader})
	_, _, err = f.AddBuckets(f.ctx, f.node, f.table.ID, 5, nil, f.request())
	require.ErrorIs(t, err, ErrInvalid)

	require.NoError(t, f.DeleteTable(f.ctx, f.node, f.table.ID, f.request()))
	require.ErrorIs(t, f.DeleteTable(f.ctx, f.node, f.table.ID, f.request()), ErrTableNotFound)
	_, err = f.TableByName(f.ctx, "t")
	require.ErrorIs(t, err, ErrTableNotFound)
	again := f.createTable("t", 1)
	require.NotEqual(t, f.table.ID, again.ID, "the name is free at once")
	_, err = f.AlterTable(f.ctx, f.node, f.table.ID, nil, nil, f.request())
	require.ErrorIs(t, err, ErrTableNotFound)
	_, _, err = f.AddBuckets(f.ctx, f.node, f.table.ID, 9, nil, f.request())
	require.ErrorIs(t, err, ErrTableNotFound)
	f.healthy()
}

// A deleted table refuses everything at once, for each stream and from each node that has it open, and goes away in bounded steps.
func TestDeletedTable(t *testing.T) {
	f := newFixture(t)
	f.bounds.destroyStreams, f.bounds.destroyEntries = 2, 2
	for i := range int64(5) {
		f.pack(0, i*10, (i+1)*10, fmt.Sprint("o", i))
	}
	f.open(1)
	s := f.ids[0]
	shared := packOf(f, 6, 7, f.prepare("shared"), entry(s, 50, 60, "shared"), entry(f.ids[2], 0, 5, "shared"))
	shared.Producers = []ProducerState{producer(s, 1, 0, ProducerBatch{Base: 50, Last: 59})}
	f.open(2)
	require.NoError(t, f.CommitPack(f.ctx, shared))
	_, err := f.BeginTransfer(f.ctx, f.node, s, 2, 1, epochTime)
	require.NoError(t, err)
	require.NoError(t, f.DeleteTable(f.ctx, f.node, f.table.ID, f.request()))
	f.healthy()

	_, _, err = f.TrimStream(f.ctx, f.node, s, 1, 5)
	require.ErrorIs(t, err, ErrStreamNotFound)
	require.ErrorIs(t, f.EndStream(f.ctx, f.node, s, 1, 60), ErrStreamNotFound)
	_, err = f.OpenStream(f.ctx, f.other, f.ids[3], 1)
	require.ErrorIs(t, err, ErrStreamNotFound)
	_, err = f.LeadBucket(f.ctx, f.lease, s, 2, 1)
	require.ErrorIs(t, err, ErrStreamNotFound)
	_, err = f.LeadAgain(f.ctx, f.other, f.ids[3], 1)
	require.ErrorIs(t, err, ErrStreamNotFound)
	_, err = f.DurableEnd(f.ctx, s)
	require.ErrorIs(t, err, ErrStreamNotFound)
	require.NoError(t, f.CommitPack(f.ctx, packOf(f, 7, 8, f.prepare("late"), entry(s, 60, 70, "late"))), "what is deleted is dropped")
	require.Equal(t, []string{"late"}, f.doomed())
	require.NoError(t, f.CloseStream(f.ctx, f.node, s, 1))

	steps := 0
	for more := true; more; steps++ {
		_, more, err = f.DestroyStreams(f.ctx, f.lease, 1)
		require.NoError(t, err)
		f.healthy()
	}
	require.Greater(t, steps, 2)
	for _, space := range []string{spaceStream, spaceBucket, spaceOwned, spaceOpen, spaceTransfer, spaceObject, spaceMeta, spaceProducer, spaceTable, spaceDeleting} {
		require.Zero(t, f.count(space), space)
	}
	require.ElementsMatch(t, []string{"late", "o0", "o1", "o2", "o3", "o4", "shared"}, f.doomed())
	loads, err := f.Loads(f.ctx)
	require.NoError(t, err)
	require.Equal(t, map[int64]int64{1: 0, 2: 0}, loads)
}

// A table whose creation, or deletion, stopped half way is finished.
func TestTableOfManyTransactions(t *testing.T) {
	f := newFixture(t)
	f.bounds.buckets = 10
	c := CreateTable{Name: "big", UUID: f.request(), Kind: LogTable, Buckets: 35, Leaders: make([]int64, 35), RequestID: f.request(), At: epochTime}
	for i := range c.Leaders {
		c.Leaders[i] = int64(i % 3)
	}
	f.db.Database = &failing{Database: f.db.Database, left: 2} // the first and second transactions
	_, _, err := f.CreateTable(f.ctx, f.node, c)
	require.ErrorIs(t, err, errCrash)
	row, err := f.TableByName(f.ctx, "big")
	require.NoError(t, err)
	require.Equal(t, []int{20, 35}, []int{row.Buckets, row.Target})
	f.healthy()
	_, streams, err := f.AddBuckets(f.ctx, f.other, row.ID, row.Target, c.Leaders[20:], f.request())
	require.NoError(t, err)
	require.Len(t, streams, 35)
	for i, s := range streams {
		require.Equal(t, []int64{int64(i), int64(i % 3)}, []int64{int64(s.Bucket), s.Leader})
	}
	f.db.Database.(*failing).left = 1
	f.db.Database.(*failing).armed = true
	require.ErrorIs(t, f.DeleteTable(f.ctx, f.node, row.ID, f.request()), errCrash)
	f.healthy()
	for more := true; more; {
		_, more, err = f.DestroyStreams(f.ctx, f.lease, 100)
		require.NoError(t, err)
	}
	f.healthy()
	_, err = f.Table(f.ctx, row.ID)
	require.ErrorIs(t, err, ErrTableNotFound)
}
