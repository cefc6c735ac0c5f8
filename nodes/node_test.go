package nodes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
)

func TestOneNodeServesWhatItCreated(t *testing.T) {
	c := newCluster(t)
	n := c.start(1)
	row, err := n.CreateTable(c.ctx(), CreateTable{Name: "orders", Buckets: 3})
	require.NoError(t, err)
	require.Equal(t, 3, row.Buckets)
	seen, ok := n.TableByUUID(row.UUID)
	require.True(t, ok, "a table is in the own view when CreateTable returns")
	require.Equal(t, row.ID, seen.ID)

	p, k := c.client(), newChecker()
	for seq := range int32(10) {
		for bucket := range 3 {
			result, err := p.try(c.ctx(), "orders", bucket, seq, 1)
			require.NoError(t, err)
			require.Equal(t, int64(seq), result.Base)
			k.ack("orders", bucket, result.Base, seq, 1)
		}
	}
	k.check(c, "orders", 3)

	_, err = n.CreateTable(c.ctx(), CreateTable{Name: "orders", Buckets: 1})
	require.ErrorIs(t, err, ErrTableExists)
	_, err = n.Stream(c.ctx(), "orders", 3)
	require.ErrorIs(t, err, ErrUnknownBucket)
	_, err = n.Stream(c.ctx(), "nothing", 0)
	require.ErrorIs(t, err, ErrUnknownTable)
}

func TestRestartKeepsRecordsOffsetsAndProducers(t *testing.T) {
	c := newCluster(t)
	n := c.start(1)
	_, err := n.CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 2})
	require.NoError(t, err)
	p, k := c.client(), newChecker()
	seq := int32(0)
	for life := range 4 {
		for range 20 {
			for bucket := range 2 {
				result, err := p.append(c.ctx(), "t", bucket, seq, 2)
				require.NoError(t, err)
				require.False(t, result.Duplicate)
				k.ack("t", bucket, result.Base, seq, 2)
			}
			seq += 2
		}
		if life%2 == 0 {
			n.abandon()
		} else {
			require.NoError(t, n.Stop(c.ctx()))
			require.NoError(t, n.Err())
			require.Equal(t, StateStopped, n.State())
		}
		n = c.start(1)
		require.EqualValues(t, life+2, n.Self().Epoch)
		for bucket := range 2 { // the retry of the last batch is recognised
			result, err := p.append(c.ctx(), "t", bucket, seq-2, 2)
			require.NoError(t, err)
			require.True(t, result.Duplicate, "bucket %d after life %d", bucket, life)
			require.Equal(t, int64(seq-2), result.Base)
		}
	}
	k.check(c, "t", 2)
}

func TestDeletedTableIsGoneAndItsNameIsFree(t *testing.T) {
	c := newCluster(t)
	n := c.start(1)
	first, err := n.CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 2})
	require.NoError(t, err)
	p := c.client()
	for seq := range int32(5) {
		_, err = p.append(c.ctx(), "t", 0, seq, 1)
		require.NoError(t, err)
	}
	require.NoError(t, n.DeleteTable(c.ctx(), "t"))
	_, err = n.Stream(c.ctx(), "t", 0)
	require.ErrorIs(t, err, ErrUnknownTable)
	require.ErrorIs(t, n.DeleteTable(c.ctx(), "t"), ErrUnknownTable)

	second, err := n.CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 1})
	require.NoError(t, err)
	require.NotEqual(t, first.UUID, second.UUID)
	result, err := p.append(c.ctx(), "t", 0, 0, 1)
	require.NoError(t, err)
	require.Zero(t, result.Base, "the new table begins at offset 0")
	c.eventually("the old streams are dropped", func() bool { return n.serving() == 1 })
	c.eventually("the old streams are destroyed", func() bool {
		rows, err := n.layer.Streams(c.ctx(), first.ID)
		return err == nil && len(rows) == 0
	})
}

func TestBytesOfDeletedTablesAreReclaimed(t *testing.T) {
	c := newCluster(t)
	c.options.WAL.InlineMax = -1 // objects only
	n := c.start(1)
	before := len(c.store.Keys())
	_, err := n.CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 2})
	require.NoError(t, err)
	p := c.client()
	for seq := range int32(20) {
		_, err = p.append(c.ctx(), "t", int(seq%2), seq/2, 1)
		require.NoError(t, err)
	}
	require.Greater(t, len(c.store.Keys()), before)
	require.NoError(t, n.DeleteTable(c.ctx(), "t"))
	c.eventually("every object is deleted", func() bool { return len(c.store.Keys()) <= before })
}

func TestAlteredOptionsAreObeyedAtOnce(t *testing.T) {
	c := newCluster(t)
	n := c.start(1)
	row, err := n.CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 1, Options: map[string]string{OptionTimestampType: "CreateTime"}})
	require.NoError(t, err)
	require.Equal(t, engine.TableOptions{Retention: defaultRetention, RetentionBytes: -1}, tableSettings{n.view}.TableOptions(row.ID))
	_, err = n.AlterTable(c.ctx(), "t", map[string]string{OptionTimestampType: "LogAppendTime", OptionRetentionMs: "1000"}, nil)
	require.NoError(t, err)
	require.Equal(t, engine.TableOptions{Retention: time.Second, RetentionBytes: -1, LogAppendTime: true}, tableSettings{n.view}.TableOptions(row.ID))
	_, err = n.AlterTable(c.ctx(), "t", nil, []string{OptionTimestampType, OptionRetentionMs})
	require.NoError(t, err)
	require.Equal(t, engine.TableOptions{Retention: defaultRetention, RetentionBytes: -1}, tableSettings{n.view}.TableOptions(row.ID))

	_, err = n.AlterTable(c.ctx(), "t", map[string]string{"no.such": "1"}, nil)
	require.ErrorIs(t, err, ErrInvalidOption)
	_, err = n.AlterTable(c.ctx(), "t", map[string]string{OptionCleanupPolicy: "compact"}, nil)
	require.ErrorIs(t, err, ErrInvalidOption)
	_, err = n.AlterTable(c.ctx(), "other", nil, nil)
	require.ErrorIs(t, err, ErrUnknownTable)
}

func TestBucketsAreAdded(t *testing.T) {
	c := newCluster(t)
	n := c.start(1)
	_, err := n.CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 1})
	require.NoError(t, err)
	_, err = n.AddBuckets(c.ctx(), "t", 1, false)
	require.ErrorIs(t, err, ErrInvalidBuckets)
	row, err := n.AddBuckets(c.ctx(), "t", 4, false)
	require.NoError(t, err)
	require.Equal(t, 4, row.Buckets)
	for bucket := range 4 {
		_, err := n.Stream(c.ctx(), "t", bucket)
		require.NoError(t, err)
	}
	rows, err := n.Partitions(c.ctx(), "t")
	require.NoError(t, err)
	require.Len(t, rows, 4)
}

func TestExpiredTableIsDeleted(t *testing.T) {
	c := newCluster(t)
	n := c.start(1)
	at := time.Now().Add(time.Second).UTC().Format(time.RFC3339)
	_, err := n.CreateTable(c.ctx(), CreateTable{Name: "gone/soon", Buckets: 1, Options: map[string]string{OptionHTTPExpiresAt: at}})
	require.NoError(t, err)
	_, err = n.CreateTable(c.ctx(), CreateTable{Name: "stays", Buckets: 1})
	require.NoError(t, err)
	c.eventually("the table expires", func() bool { return len(n.Tables()) == 1 })
	require.Equal(t, "stays", n.Tables()[0].Name)
}

func TestStreamsAreRefusedAfterStop(t *testing.T) {
	c := newCluster(t)
	n := c.start(1)
	_, err := n.CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 1})
	require.NoError(t, err)
	s, err := n.Stream(c.ctx(), "t", 0)
	require.NoError(t, err)
	require.NoError(t, n.Stop(c.ctx()))
	require.NoError(t, n.Stop(c.ctx()), "Stop may be called again")
	<-n.Done()
	_, err = n.Stream(c.ctx(), "t", 0)
	require.ErrorIs(t, err, ErrUnavailable)
	_, err = s.Append(c.ctx(), engine.Append{Batches: []batch.Batch{build("t", 0, 1, 0, 1)}})
	require.ErrorIs(t, err, engine.ErrNotOpen)
	_, err = n.CreateTable(c.ctx(), CreateTable{Name: "u", Buckets: 1})
	require.ErrorIs(t, err, ErrUnavailable)
	ready, reason := n.Ready()
	require.False(t, ready)
	require.NotEmpty(t, reason)
}

func TestNodeThatNeverStartedStops(t *testing.T) {
	c := newCluster(t)
	n, err := New(quick(), c.start(1).layer, c.store, c.logger, NewMetrics(nil))
	require.NoError(t, err)
	require.NoError(t, n.Stop(context.Background()))
	<-n.Done()
	require.Error(t, n.Start(context.Background()))
}

func TestManyStreamsOpenAtStart(t *testing.T) {
	c := newCluster(t)
	c.options.SyncInterval = 10 * time.Second
	const tables = 4
	buckets := int(setting("VARVE_TEST_STREAMS", 1000)) / tables
	n := c.start(1)
	for i := range tables {
		_, err := n.CreateTable(c.ctx(), CreateTable{Name: fmt.Sprintf("t%d", i), Buckets: buckets})
		require.NoError(t, err)
	}
	c.eventually("every stream is open", func() bool { return n.serving() == tables*buckets })
	p := c.client()
	for i := range 20 {
		_, err := p.append(c.ctx(), "t1", i, 0, 1)
		require.NoError(t, err)
	}
	n.abandon()
	began := time.Now()
	n = c.start(1)
	require.Equal(t, tables*buckets, n.serving(), "a node is ready once its streams are open")
	t.Logf("%d streams open %v after the crash", tables*buckets, time.Since(began))
	began = time.Now()
	require.NoError(t, n.Stop(c.ctx()))
	t.Logf("closed in %v", time.Since(began))
}

func TestPartitionsOfOthersAreListed(t *testing.T) {
	c := newCluster(t)
	nodes := c.startAll(2)
	const buckets = 400
	_, err := nodes[0].CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: buckets})
	require.NoError(t, err)
	for _, m := range nodes {
		for range 2 { // read, then known
			rows, err := m.Partitions(c.ctx(), "t")
			require.NoError(t, err)
			require.Len(t, rows, buckets)
			for bucket, row := range rows {
				require.Equal(t, bucket, row.Bucket)
			}
		}
	}
	_, err = nodes[0].Partitions(c.ctx(), "u")
	require.ErrorIs(t, err, ErrUnknownTable)
}

func TestWhatWasJustMadeElsewhereIsKnown(t *testing.T) {
	c := newCluster(t)
	nodes := c.startAll(2)
	served := func(s *engine.Stream, err error) {
		t.Helper()
		var elsewhere *NotLeader
		if err != nil {
			require.ErrorAs(t, err, &elsewhere)
		}
	}
	for i := range 20 {
		name := fmt.Sprintf("t%d", i)
		row, err := nodes[0].CreateTable(c.ctx(), CreateTable{Name: name, Buckets: 1})
		require.NoError(t, err)
		served(nodes[1].StreamByUUID(c.ctx(), row.UUID, 0))
		served(nodes[1].Stream(c.ctx(), name, 0))
		_, err = nodes[0].AddBuckets(c.ctx(), name, 2, false)
		require.NoError(t, err)
		served(nodes[1].Stream(c.ctx(), name, 1))
		_, err = nodes[1].Stream(c.ctx(), name, 2)
		require.ErrorIs(t, err, ErrUnknownBucket)
	}
}
