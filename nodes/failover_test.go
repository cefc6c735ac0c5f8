package nodes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
)

func TestDeadLeaderIsFencedAndItsStreamsAreServedElsewhere(t *testing.T) {
	const buckets = 6
	c, nodes, f := busyCluster(t, 3, buckets, 5)

	rows, err := nodes[0].Partitions(c.ctx(), "t")
	require.NoError(t, err)
	led := map[int64]int{}
	for _, row := range rows {
		led[row.Leader]++
	}
	require.Equal(t, map[int64]int{1: 2, 2: 2, 3: 2}, led, "buckets go round the nodes")

	nodes[2].abandon()
	began := time.Now()
	f.flow(5)
	t.Logf("appends went on %v after the death", time.Since(began))
	row, ok := nodes[0].view.Node(3)
	require.True(t, ok)
	require.True(t, row.Fenced)
	for bucket := range buckets {
		_, m, err := c.leader(c.ctx(), "t", bucket)
		require.NoError(t, err)
		require.NotEqual(t, int64(3), m.ref.ID)
	}
	f.check()

	back := c.start(3) // owning nothing
	require.Zero(t, back.serving())
	require.EqualValues(t, 2, back.ref.Epoch)
	f.flow(1)
	f.check()
}

func TestDeathOfTheLeaseHolder(t *testing.T) {
	c, nodes, f := busyCluster(t, 3, 3, 3)
	nodes[0].abandon()
	f.flow(3)
	f.check()
	c.eventually("another node is the controller", func() bool {
		row, ok := nodes[1].Controller()
		return ok && row.ID != 1
	})
}

func TestFiveInFlightSurviveTwoMoves(t *testing.T) {
	c := newCluster(t)
	c.startAll(3)
	f := c.traffic(1)
	f.flow(1)
	for range 2 {
		s, leader, err := c.leader(c.ctx(), "t", 0)
		require.NoError(t, err)
		for i := range int32(5) { // handed over, never answered
			s.AppendAsync(engine.Append{Batches: []batch.Batch{build("t", 0, f.id, f.next+2*i, 2)}}, func(engine.AppendResult, error) {})
		}
		leader.abandon()
		for range 5 {
			require.EqualValues(t, f.next, f.send(0), "offsets follow sequences: nothing is lost or doubled")
			f.next += 2
		}
		c.start(leader.ref.ID)
	}
	f.check()
}

func TestZombieAcknowledgesNothing(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"inline":        func(*Options) {},
		"objects":       func(o *Options) { o.WAL.InlineMax = -1 },
		"store alone":   func(o *Options) { o.WAL.InlineMax = -1; o.Fence = layer.FenceStore },
		"layer alone":   func(o *Options) { o.WAL.InlineMax = -1; o.Fence = layer.FenceLayer },
		"one at a time": func(o *Options) { o.WAL.Inflight = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			zombie(t, change)
		})
	}
}

func zombie(t *testing.T, change func(*Options)) {
	c := newCluster(t)
	c.options.Engine.PackInterval = time.Hour
	change(&c.options)
	nodes := c.startAll(3)
	f := c.traffic(3)
	f.flow(3)

	zombie := nodes[2]
	bucket := f.ledBy(zombie)
	stream, err := zombie.Stream(c.ctx(), "t", bucket)
	require.NoError(t, err)

	zombie.pause.close()
	answers := make(chan error, 10)
	for i := range int32(10) { // in flight when it pauses
		stream.AppendAsync(engine.Append{Batches: []batch.Batch{build("t", bucket, f.id+1000, i, 1)}}, func(_ engine.AppendResult, err error) { answers <- err })
	}
	c.eventually("the zombie is fenced", func() bool {
		row, ok := nodes[0].view.Node(3)
		return ok && row.Fenced
	})
	f.flow(3)
	c.eventually("the log of the zombie is finished", func() bool {
		row, err := nodes[0].layer.WAL(c.ctx(), zombie.ref)
		return err == nil && row.Done || errors.Is(err, layer.ErrWALNotFound) // forgotten already
	})
	time.Sleep(4*c.options.SweepInterval + c.options.DestroyGrace) // everything that can be collected is

	zombie.pause.open()
	for range 10 {
		select {
		case err := <-answers:
			require.Error(t, err, "a zombie acknowledged")
		case <-time.After(patience):
			t.Fatal("an append of the zombie was never answered")
		}
	}
	select {
	case <-zombie.Done():
	case <-time.After(patience):
		t.Fatal("the zombie goes on")
	}
	require.ErrorIs(t, zombie.Err(), ErrFenced)
	require.Equal(t, StateFailed, zombie.State())
	_, err = zombie.Stream(c.ctx(), "t", bucket)
	require.ErrorIs(t, err, ErrUnavailable)
	f.flow(1)
	f.check()
}

func TestPausedHolderFencesNobody(t *testing.T) {
	c := newCluster(t)
	nodes := c.startAll(3)
	holder := nodes[0]
	lease := holder.tenure.Load().lease
	holder.pause.close()
	c.eventually("the lease is taken over", func() bool { return nodes[1].tenure.Load() != nil || nodes[2].tenure.Load() != nil })
	// The holder of before fences nobody when it wakes, though it saw nobody's heartbeats for long: its own clock stood still.
	holder.pause.open()
	c.eventually("it notices", func() bool { return holder.tenure.Load() == nil })
	time.Sleep(4 * c.options.NodeTimeout) // longer than any wrong judgement would take
	for _, m := range nodes[1:] {
		require.NoError(t, m.Err())
		require.Equal(t, StateRunning, m.State())
	}
	err := holder.layer.FenceNode(c.ctx(), lease, nodes[1].ref, 0)
	require.Error(t, err, "a stale holder's command is refused")
}

func TestOverlappingHoldersAreToldApart(t *testing.T) {
	c := newCluster(t)
	nodes := c.startAll(2)
	row, err := nodes[0].CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 1})
	require.NoError(t, err)
	old := nodes[0].tenure.Load().lease
	seen, err := nodes[1].layer.Lease(c.ctx(), layer.CoordinatorLease)
	require.NoError(t, err)
	c.eventually("node 2 takes the lease from a holder that does not know", func() bool {
		seen, err = nodes[1].layer.Lease(c.ctx(), layer.CoordinatorLease)
		require.NoError(t, err)
		_, err = nodes[1].layer.AcquireLease(c.ctx(), nodes[1].ref, layer.CoordinatorLease, seen)
		return err == nil
	})
	streams, err := nodes[0].layer.Streams(c.ctx(), row.ID)
	require.NoError(t, err)
	_, err = nodes[0].layer.LeadBucket(c.ctx(), old, streams[0].ID, 2, streams[0].LeaderEpoch)
	require.ErrorIs(t, err, layer.ErrNotHolder)
	require.ErrorIs(t, nodes[0].layer.FenceNode(c.ctx(), old, nodes[1].ref, 0), layer.ErrNotHolder)
	_, err = nodes[0].layer.RenewLease(c.ctx(), old)
	require.ErrorIs(t, err, layer.ErrNotHolder)
	c.eventually("node 1 gives up its tenure", func() bool { t := nodes[0].tenure.Load(); return t == nil || t.lease.Epoch != old.Epoch })
	require.NoError(t, nodes[0].Err())
	require.NoError(t, nodes[1].Err())
}

func TestMetadataOutageFencesNobody(t *testing.T) {
	c, nodes, f := busyCluster(t, 3, 3, 2)

	c.metadata.close()
	outage := time.Now()
	for time.Since(outage) < 10*c.options.HeartbeatInterval+c.options.NodeTimeout {
		f.flow(1) // streams that are held go on
		time.Sleep(c.options.HeartbeatInterval)
	}
	ctx, cancel := context.WithTimeout(c.ctx(), 100*time.Millisecond)
	defer cancel()
	_, err := nodes[0].CreateTable(ctx, CreateTable{Name: "u", Buckets: 1})
	require.ErrorIs(t, err, ErrUnavailable)
	c.metadata.open()

	time.Sleep(2 * c.options.NodeTimeout)
	for _, m := range nodes {
		require.NoError(t, m.Err())
		require.Equal(t, StateRunning, m.State())
	}
	rows, err := nodes[0].layer.Nodes(c.ctx())
	require.NoError(t, err)
	for _, row := range rows {
		require.False(t, row.Fenced, "node %d", row.ID)
	}
	_, err = nodes[0].CreateTable(c.ctx(), CreateTable{Name: "v", Buckets: 1})
	require.NoError(t, err, "all recovers by itself")
	f.flow(1)
	f.check()
}

func TestSlowMetadataFencesNobody(t *testing.T) {
	c, nodes, f := busyCluster(t, 3, 3, 1)

	slow := c.options.NodeTimeout * 6 / 10 // six heartbeat intervals
	c.metadata.slow(slow)
	began := time.Now()
	for time.Since(began) < 3*c.options.NodeTimeout {
		f.flow(1)
	}
	c.metadata.slow(0)
	for _, m := range nodes {
		require.NoError(t, m.Err())
		require.Equal(t, StateRunning, m.State())
	}
	rows, err := nodes[0].layer.Nodes(c.ctx())
	require.NoError(t, err)
	for _, row := range rows {
		require.False(t, row.Fenced, "node %d", row.ID)
	}
	f.flow(1)
	f.check()
}

func TestCleanStopMovesStreamsAtOnce(t *testing.T) {
	c, nodes, f := busyCluster(t, 3, 6, 2)
	for i, m := range nodes[:2] { // the lease holder among them
		require.NoError(t, m.Stop(c.ctx()))
		began := time.Now()
		f.flow(1)
		t.Logf("stop %d: streams moved in %v", i, time.Since(began))
	}
	require.Equal(t, 6, nodes[2].serving())
	f.check()
}

func TestRequestsAreRedirected(t *testing.T) {
	c := newCluster(t)
	nodes := c.startAll(2)
	_, err := nodes[0].CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 2})
	require.NoError(t, err)
	for bucket := range 2 {
		var redirects int
		for _, m := range nodes {
			_, err := m.Stream(c.ctx(), "t", bucket)
			var elsewhere *NotLeader
			if errors.As(err, &elsewhere) {
				redirects++
				require.NotEqual(t, m.ref.ID, elsewhere.Leader.ID)
				require.Equal(t, fmt.Sprintf("node-%d:9092", elsewhere.Leader.ID), elsewhere.Leader.Kafka)
			} else {
				require.NoError(t, err)
			}
		}
		require.Equal(t, 1, redirects)
	}
}

func TestObjectStoreOutageIsLivedThrough(t *testing.T) {
	c, nodes, f := busyCluster(t, 2, 2, 2)
	c.store.SetOutage(true)
	f.flow(3) // inline
	nodes[1].abandon()
	c.eventually("the dead node is fenced", func() bool { row, ok := nodes[0].view.Node(2); return ok && row.Fenced })
	c.store.SetOutage(false)
	f.flow(2)
	f.check()
}

func TestLeaderThatIsCutOffRefusesNothingForGood(t *testing.T) {
	c, nodes, f := busyCluster(t, 2, 2, 2)
	bucket := f.ledBy(nodes[1])
	old, err := nodes[1].Stream(c.ctx(), "t", bucket)
	require.NoError(t, err)
	nodes[1].pause.close() // it can reach nobody, but clients can reach it
	f.flow(3)

	ctx, cancel := context.WithTimeout(c.ctx(), 500*time.Millisecond)
	defer cancel()
	_, err = old.Append(ctx, engine.Append{Batches: []batch.Batch{build("t", bucket, f.id, f.next, 1)}})
	require.Error(t, err)
	require.NotErrorIs(t, err, engine.ErrOutOfOrderSequence, "the producer has appended elsewhere")
	_, err = old.Read(ctx, engine.Read{Offset: int64(f.next), MaxBytes: 1000})
	var outside *engine.OffsetOutOfRange
	require.Error(t, err)
	require.NotErrorAs(t, err, &outside, "the offset exists elsewhere")

	nodes[1].pause.open()
	<-nodes[1].Done()
	_, err = old.Append(c.ctx(), engine.Append{Batches: []batch.Batch{build("t", bucket, f.id, f.next, 1)}})
	require.NotErrorIs(t, err, engine.ErrOutOfOrderSequence)
	require.Error(t, err)
	f.check()
}
