package nodes

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
)

func TestStatusTellsWhatTheClusterIs(t *testing.T) {
	c, nodes, _ := busyCluster(t, 2, 4, 3)

	status := nodes[1].Status(c.ctx())
	require.Equal(t, "test", status.Cluster)
	require.EqualValues(t, 2, status.Node)
	require.EqualValues(t, 1, status.Epoch)
	require.Equal(t, "running", status.State)
	require.Empty(t, status.Reason)
	require.EqualValues(t, 1, status.Controller)
	require.Equal(t, 1, status.Tables)
	require.Equal(t, 2, status.Serving)
	require.Equal(t, "both", status.Fence)
	require.Len(t, status.Nodes, 2)
	for _, node := range status.Nodes {
		require.True(t, node.Live)
		require.EqualValues(t, 2, node.Streams)
		require.Equal(t, node.ID == 1, node.Controller)
	}
	text, err := json.Marshal(status)
	require.NoError(t, err)
	require.Contains(t, string(text), `"heartbeat_age"`)

	buckets, err := nodes[1].BucketStatuses(c.ctx(), "t")
	require.NoError(t, err)
	require.Len(t, buckets, 4)
	for bucket, b := range buckets {
		require.Equal(t, bucket, b.Bucket)
		require.Equal(t, "open", b.State)
		require.Equal(t, b.Leader == 2, b.End != nil, "only the leader knows the durable end")
		if b.End != nil {
			require.EqualValues(t, 6, *b.End)
		}
	}
	_, err = nodes[1].BucketStatuses(c.ctx(), "u")
	require.ErrorIs(t, err, ErrUnknownTable)
}

func TestProducerIDsDiffer(t *testing.T) {
	c := newCluster(t)
	nodes := c.startAll(2)
	seen := map[int64]bool{}
	for range 20 {
		for _, m := range nodes {
			id, err := m.ProducerID(c.ctx())
			require.NoError(t, err)
			require.False(t, seen[id])
			require.GreaterOrEqual(t, id, int64(0))
			seen[id] = true
		}
	}
}

// countingDB refuses all but the first transactions.
type countingDB struct {
	kv.Database
	left int
}

func (d *countingDB) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	if d.left--; d.left < 0 {
		return kv.Commit{}, kv.ErrUnavailable
	}
	return d.Database.Transact(ctx, fn)
}

func TestUnfinishedTableIsFinished(t *testing.T) {
	c := newCluster(t)
	n := c.start(1)
	const buckets = 600
	var row layer.TableRow
	for allowed := 1; ; allowed++ { // a creator that dies after so many transactions
		dying, err := layer.New(&countingDB{c.db, allowed}, "test")
		require.NoError(t, err)
		_, _, err = dying.CreateTable(c.ctx(), n.ref, layer.CreateTable{
			Name: "t", UUID: uuid.New(), Kind: layer.LogTable, Buckets: buckets, Leaders: spread(n.LiveNodes(), 0, buckets, time.Now()), RequestID: uuid.New(), At: time.Now().Add(-time.Hour),
		})
		require.Error(t, err)
		if row, err = n.layer.TableByName(c.ctx(), "t"); err == nil {
			break
		}
	}
	require.Equal(t, buckets, row.Target)
	c.eventually("the table is finished", func() bool {
		row, err := n.Table(c.ctx(), "t")
		return err == nil && row.Buckets == buckets
	})
	_, err := n.Stream(c.ctx(), "t", buckets-1)
	require.NoError(t, err)
}

// The status is wanted most while the metadata cannot be reached.
func TestStatusDuringAnOutageOfTheMetadata(t *testing.T) {
	c := newCluster(t)
	nodes := c.startAll(2)
	c.metadata.close()
	defer c.metadata.open()
	began := time.Now()
	status := nodes[0].Status(c.ctx())
	require.Less(t, time.Since(began), patience/2)
	require.Len(t, status.Nodes, 2)
	require.True(t, status.Nodes[1].Live)
	require.Zero(t, status.Nodes[1].Heartbeats)
}
