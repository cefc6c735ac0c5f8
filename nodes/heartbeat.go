package nodes

import (
	"context"
	"sync/atomic"
	"time"
)

// pulse is what this node knows of its own heartbeats.
type pulse struct {
	beats atomic.Int64 // heartbeats answered in this life: the clock by which the lease holder judges others
	count atomic.Int64 // count in the row, as last answered
	last  atomic.Int64 // when the last one was answered, nanoseconds since start
	start time.Time    // for monotonic time
}

func newPulse() *pulse { return &pulse{start: time.Now()} }

// beat notes an answered heartbeat.
func (p *pulse) beat(count int64) {
	p.count.Store(count)
	p.last.Store(int64(time.Since(p.start)))
	p.beats.Add(1)
}

// age is the time since the last heartbeat that was answered.
func (p *pulse) age() time.Duration {
	return time.Since(p.start) - time.Duration(p.last.Load())
}

// heartbeat is the step of the heartbeat loop. Between two that succeed the loop waits a whole interval, so a node that was held up does not
// beat faster afterwards: as lease holder its clock never runs ahead of the others'.
func (n *Node) heartbeat(ctx context.Context) error {
	row, err := n.layer.Heartbeat(ctx, n.ref)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n.metrics.Heartbeats.WithLabelValues(result(err)).Inc()
	if err != nil {
		if n.failIfFenced("heartbeat", err) {
			return nil // said once, and there is no other try
		}
		return err
	}
	n.pulse.beat(row.Count)
	return nil
}
