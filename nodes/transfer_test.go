package nodes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTransferDrainAndRebalance(t *testing.T) {
	const buckets = 8
	c, nodes, f := busyCluster(t, 2, buckets, 2)

	_, from, err := c.leader(c.ctx(), "t", 0)
	require.NoError(t, err)
	to := 3 - from.ref.ID
	_, err = from.Transfer(c.ctx(), "t", 0, to)
	require.NoError(t, err)
	c.eventually("the bucket has moved", func() bool { _, m, err := c.leader(c.ctx(), "t", 0); return err == nil && m.ref.ID == to })
	f.flow(1)
	_, err = from.Transfer(c.ctx(), "t", 0, 99)
	require.ErrorIs(t, err, ErrInvalidRequest)

	moves, err := nodes[0].DrainNode(c.ctx(), 2)
	require.NoError(t, err)
	require.Positive(t, moves)
	c.eventually("node 2 is empty", func() bool { return nodes[1].serving() == 0 && nodes[0].serving() == buckets })
	f.flow(1)

	require.NoError(t, nodes[0].ResetSlots(c.ctx(), 2))
	third := c.start(3)
	moves, err = nodes[0].Rebalance(c.ctx())
	require.NoError(t, err)
	require.Positive(t, moves)
	c.eventually("the load is even", func() bool {
		return nodes[0].serving() <= 3 && nodes[1].serving() >= 2 && third.serving() >= 2 && nodes[0].serving()+nodes[1].serving()+third.serving() == buckets
	})
	f.flow(1)
	f.check()
	c.eventually("no transfer is left", func() bool { list, err := nodes[0].Transfers(c.ctx()); return err == nil && len(list) == 0 })
}

// A drained node that is restarted gets no streams until the operator says so, whatever slots it registers with.
func TestDrainedNodeStaysDrainedOverARestart(t *testing.T) {
	c := newCluster(t)
	nodes := c.startAll(2)
	_, err := nodes[0].DrainNode(c.ctx(), 2)
	require.NoError(t, err)
	require.NoError(t, nodes[1].Stop(c.ctx()))
	back := c.start(2, func(o *Options) { o.Slots = 3 })

	f := c.traffic(4)
	f.flow(1)
	require.Equal(t, 4, nodes[0].serving())
	require.Zero(t, back.serving())
	status := back.NodeStatuses(c.ctx())[1]
	require.Zero(t, status.Slots)
	require.Equal(t, 3, *status.OwnSlots)

	require.NoError(t, back.ResetSlots(c.ctx(), 2))
	status = back.NodeStatuses(c.ctx())[1]
	require.Equal(t, 3, status.Slots)
	require.Nil(t, status.OwnSlots)
	_, err = back.Rebalance(c.ctx())
	require.NoError(t, err)
	c.eventually("it has three slots of four", func() bool { return back.serving() == 3 })
	f.flow(1)
	f.check()
}

// A move to a node that is drained before it is done is given up.
func TestDrainGivesUpMovesToTheNode(t *testing.T) {
	c, nodes, f := busyCluster(t, 2, 2, 1)
	c.store.SetOutage(true) // the source cannot pack, so it cannot close
	_, err := nodes[0].Transfer(c.ctx(), "t", f.ledBy(nodes[0]), 2)
	require.NoError(t, err)
	_, err = nodes[0].DrainNode(c.ctx(), 2)
	require.NoError(t, err)
	c.store.SetOutage(false)
	c.eventually("node 1 has all", func() bool {
		pending, err := nodes[0].Transfers(c.ctx())
		return err == nil && len(pending) == 0 && nodes[0].serving() == 2 && nodes[1].serving() == 0
	})
	f.flow(1)
	f.check()
}

// A drain that nobody could take the streams of changes nothing.
func TestLastNodeCannotBeDrained(t *testing.T) {
	c := newCluster(t)
	n := c.start(1)
	_, err := n.DrainNode(c.ctx(), 1)
	require.ErrorIs(t, err, ErrInvalidRequest)
	require.Equal(t, n.options.Slots, n.Self().Slots)
	_, err = n.DrainNode(c.ctx(), 7)
	require.ErrorIs(t, err, ErrInvalidRequest)
	require.ErrorIs(t, n.ResetSlots(c.ctx(), 7), ErrInvalidRequest)
}
