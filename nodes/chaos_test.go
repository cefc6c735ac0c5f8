package nodes

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/wal/objects/objectstest"
)

// TestChaos runs idempotent producers against three nodes while a seeded schedule kills, pauses, stops and restarts them, cuts off the
// metadata and the object store, and moves streams. At the end every acknowledged record is at its offset, and none is there twice.
//
// VARVE_TEST_SEED replays a schedule, VARVE_TEST_STEPS makes it longer.
func TestChaos(t *testing.T) {
	seed := setting("VARVE_TEST_SEED", time.Now().UnixNano())
	steps := setting("VARVE_TEST_STEPS", 8)
	t.Logf("VARVE_TEST_SEED=%d VARVE_TEST_STEPS=%d", seed, steps)
	random := rand.New(rand.NewPCG(uint64(seed), 1))

	c := newCluster(t)
	c.store.SetFaults(objectstest.Faults{Seed: seed, All: objectstest.Rates{Delay: 2 * time.Millisecond, Err: 0.002, ErrAfter: 0.002}})
	c.startAll(3)
	const buckets = 5
	_, err := c.alive()[0].CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: buckets})
	require.NoError(t, err)

	k := newChecker()
	produce, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	for bucket := range buckets {
		p := c.client()
		wg.Go(func() { p.produce(produce, k, bucket) })
	}

	x := &chaos{c, t, random, map[int64]bool{}}
	for range steps {
		x.step()
	}
	x.heal()
	settled := k.count()
	c.eventually("appends go on after the last fault", func() bool { return k.count() > settled+20*buckets })
	stop()
	wg.Wait()
	k.check(c, "t", buckets)
	t.Logf("%d records were acknowledged", k.count())
}

// produce appends to one bucket until ctx ends.
func (p *client) produce(ctx context.Context, k *checker, bucket int) {
	for seq := int32(0); ctx.Err() == nil; {
		count := 1 + int(seq%3)
		result, err := p.append(ctx, "t", bucket, seq, count)
		if err != nil {
			return
		}
		k.ack("t", bucket, result.Base, seq, count)
		seq += int32(count)
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func setting(name string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// chaos does one thing after the other to the cluster; at least one node is left to run at any time.
type chaos struct {
	c      *cluster
	t      *testing.T
	random *rand.Rand
	paused map[int64]bool
}

func (x *chaos) step() {
	id := 1 + x.random.Int64N(3)
	x.c.mu.Lock()
	m := x.c.members[id]
	x.c.mu.Unlock()
	switch what := x.random.IntN(8); {
	case m.State() > StateRunning: // dead: it comes back
		x.restart(id)
	case x.paused[id]:
		x.t.Logf("chaos: resume node %d", id)
		m.pause.open()
		delete(x.paused, id)
	case what <= 1 && x.others(id):
		x.t.Logf("chaos: kill node %d", id)
		m.abandon()
	case what == 2 && x.others(id):
		x.t.Logf("chaos: pause node %d", id)
		m.pause.close()
		x.paused[id] = true
	case what == 3 && x.others(id):
		x.t.Logf("chaos: stop node %d", id)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_ = m.Stop(ctx) // it may fail: what is left is recovered
		cancel()
	case what == 4:
		x.t.Log("chaos: metadata outage")
		x.c.metadata.close()
		x.wait()
		x.c.metadata.open()
	case what == 5:
		x.t.Log("chaos: object store outage")
		x.c.store.SetOutage(true)
		x.wait()
		x.c.store.SetOutage(false)
	case what == 6:
		x.t.Log("chaos: rebalance")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, _ = m.Rebalance(ctx) // it may fail: nothing has moved then
		cancel()
	default:
		x.t.Logf("chaos: restart node %d at once", id)
		m.abandon()
		x.restart(id)
	}
	x.wait()
}

func (x *chaos) wait() { time.Sleep(time.Duration(20+x.random.IntN(480)) * time.Millisecond) }

// others tells whether another node than id runs and is not paused.
func (x *chaos) others(id int64) bool {
	for _, m := range x.c.alive() {
		if m.ref.ID != id && !x.paused[m.ref.ID] {
			return true
		}
	}
	return false
}

func (x *chaos) restart(id int64) {
	x.t.Logf("chaos: start node %d", id)
	delete(x.paused, id)
	x.c.launch(id)
}

// heal ends every fault and brings every node back.
func (x *chaos) heal() {
	x.c.metadata.open()
	x.c.store.SetOutage(false)
	x.c.store.SetFaults(objectstest.Faults{})
	for id := int64(1); id <= 3; id++ {
		x.c.mu.Lock()
		m := x.c.members[id]
		x.c.mu.Unlock()
		m.pause.open()
		if m.State() > StateRunning {
			x.restart(id)
		}
	}
	x.t.Log("chaos: healed")
}
