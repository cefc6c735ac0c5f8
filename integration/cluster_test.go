package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/integration/process"
)

// exitFenced is the exit code of a node that found itself fenced.
const exitFenced = 3

// tables are those that startClients makes.
var tables = []string{topicName, streamName}

// startCluster starts three nodes that find a dead one in three seconds.
func startCluster(t *testing.T, args ...string) *process.Cluster {
	c := process.NewCluster(t, 3, process.Options{Binary: binary, Args: append([]string{
		"--heartbeat-interval", "500ms", "--node-timeout", "3s", "--lease-ttl", "2s", "--detector-interval", "250ms", "--coordinator-tick", "500ms",
		"--sync-interval", "1s", "--pack-interval", "700ms", "--merge-interval", "2s", "--shutdown-timeout", "20s",
	}, args...)})
	c.Start()
	return c
}

// leader is the node that leads a bucket of a table.
func leader(t *testing.T, c *process.Cluster, table string, bucket int) *process.Node {
	t.Helper()
	streams, err := c.Streams(table)
	require.NoError(t, err)
	return c.Node(streams[bucket].Leader)
}

// awaitProgress waits until every stream has some more acknowledged appends.
func (c *clients) awaitProgress(cluster *process.Cluster, more int) {
	all := append(c.topic[:len(c.topic):len(c.topic)], c.stream)
	for _, s := range all {
		want := s.Acks() + more
		cluster.Await(fmt.Sprintf("%s has %d acknowledged appends", s.Name, want), func() bool { return s.Acks() >= want })
	}
}

func (c *clients) finish(t *testing.T, cluster *process.Cluster) {
	t.Helper()
	c.awaitProgress(cluster, 5)
	c.stop()
	c.check(t)
	cluster.Check()
	t.Logf("acknowledged: %d", c.acknowledged())
}

// A leader is killed under load. The others take its streams over, and it comes back.
func TestKillLeader(t *testing.T) {
	for placement, flags := range placements {
		t.Run(placement, func(t *testing.T) { killLeaders(t, flags) })
	}
}

func killLeaders(t *testing.T, flags []string) {
	random := seed(t)
	cluster := startCluster(t, flags...)
	clients := startClients(t, cluster.Nodes...)
	for round := range rounds(2) {
		clients.awaitProgress(cluster, 20)
		victim := pickLeader(t, cluster, random)
		killed := time.Now()
		victim.Kill()
		cluster.AwaitServed(tables, victim)
		t.Logf("round %d: killed a leader of %s; its streams are served after %v", round, victim.Admin, time.Since(killed).Round(time.Millisecond))
		clients.awaitProgress(cluster, 5)
		victim.Start()
		victim.AwaitReady()
	}
	clients.finish(t, cluster)
}

func pickLeader(t *testing.T, cluster *process.Cluster, random *rand.Rand) *process.Node {
	t.Helper()
	if random.IntN(4) == 0 {
		return leader(t, cluster, streamName, 0)
	}
	return leader(t, cluster, topicName, random.IntN(3))
}

// A leader is stopped by SIGSTOP until others serve its streams. When it goes on it acknowledges nothing, not even appends that waited in its
// sockets, and exits as fenced.
func TestPausedLeaderComesBack(t *testing.T) {
	for name, flags := range map[string][]string{
		"inline":                     {"--wal-inline-max", "512KiB"},
		"objects fenced by both":     {"--wal-inline-max", "-1"},
		"objects fenced by store":    {"--wal-inline-max", "-1", "--wal-fence", "store"},
		"objects fenced by metadata": {"--wal-inline-max", "-1", "--wal-fence", "layer"},
	} {
		t.Run(name, func(t *testing.T) { pauseLeaders(t, flags) })
	}
}

func pauseLeaders(t *testing.T, flags []string) {
	random := seed(t)
	cluster := startCluster(t, flags...)
	clients := startClients(t, cluster.Nodes...)
	for round := range rounds(1) {
		clients.awaitProgress(cluster, 20)
		zombie := leader(t, cluster, streamName, 0)
		if round > 0 {
			zombie = pickLeader(t, cluster, random)
		}
		zombie.Pause()
		paused := time.Now()
		late := appendTo(t, zombie, 5)
		cluster.AwaitServed(tables, zombie)
		t.Logf("round %d: paused; its streams are served elsewhere after %v", round, time.Since(paused).Round(time.Millisecond))
		clients.awaitProgress(cluster, 5)
		zombie.Signal(syscall.SIGCONT)
		require.Equal(t, exitFenced, zombie.ExitCode())
		require.Empty(t, late(), "appends that the paused node acknowledged after it was fenced")
		zombie.Start()
		zombie.AwaitReady()
	}
	clients.finish(t, cluster)
}

// appendTo sends appends to a node and nowhere else. The function that it gives waits for the answers and lists those that were acknowledged.
func appendTo(t *testing.T, n *process.Node, count int) (acknowledged func() []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var sending sync.WaitGroup
	var mu sync.Mutex
	var acks []string
	for i := range count {
		sending.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.HTTP+"/v1/stream/"+streamName, strings.NewReader(fmt.Sprintf(`"late/%d"`, i)))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			answer, err := client.Do(r)
			if err != nil {
				return
			}
			answer.Body.Close()
			if answer.StatusCode < 300 {
				mu.Lock()
				defer mu.Unlock()
				acks = append(acks, fmt.Sprintf("late/%d: %s", i, answer.Status))
			}
		})
	}
	t.Cleanup(func() { cancel(); sending.Wait(); client.CloseIdleConnections() })
	return func() []string {
		sending.Wait()
		return acks
	}
}

// Nodes are stopped by SIGTERM and started again, one after the other, under load: every one ends with code 0, and no client notices more than a pause.
func TestRollingRestart(t *testing.T) {
	seed(t)
	cluster := startCluster(t)
	clients := startClients(t, cluster.Nodes...)
	for i, n := range cluster.Nodes {
		clients.awaitProgress(cluster, 20)
		asked := time.Now()
		require.Zero(t, n.Stop(), "exit code")
		stopped := time.Since(asked)
		cluster.AwaitServed(tables, n)
		t.Logf("node %d: stopped after %v, its streams are served after %v", i+1, stopped.Round(time.Millisecond), time.Since(asked).Round(time.Millisecond))
		n.Start()
		n.AwaitReady()
	}
	clients.finish(t, cluster)
}

// Streams are moved from node to node under load, by the command. HTTP requests that reach another node than the leader are proxied.
func TestTransferUnderLoad(t *testing.T) {
	random := seed(t)
	cluster := startCluster(t, "--routing", "proxy")
	clients := startClients(t, cluster.Nodes...)
	for range rounds(8) {
		table, bucket := topicName, random.IntN(3)
		if random.IntN(3) == 0 {
			table, bucket = streamName, 0
		}
		streams, err := cluster.Streams(table)
		require.NoError(t, err)
		to := streams[bucket].Leader%3 + 1
		via := cluster.Nodes[random.IntN(3)]
		out, err := via.Varve("stream", "transfer", table, "--bucket", fmt.Sprint(bucket), "--to", fmt.Sprint(to), "--wait", "--admin", via.Admin)
		require.NoError(t, err)
		t.Logf("%s", strings.TrimSpace(out))
		require.Equal(t, cluster.Node(to), leader(t, cluster, table, bucket))
		clients.awaitProgress(cluster, 5)
	}
	clients.finish(t, cluster)
}

// An operator fences a node through one that does not hold the lease. The node exits as fenced, its streams move, and what it was asked for
// is answered by others.
func TestFenceByOperator(t *testing.T) {
	seed(t)
	cluster := startCluster(t)
	clients := startClients(t, cluster.Nodes...)
	clients.awaitProgress(cluster, 20)
	statuses, err := cluster.Statuses()
	require.NoError(t, err)
	var via, victim *process.Node // neither holds the lease
	for _, s := range statuses {
		switch n := cluster.Node(s.ID); {
		case s.Controller:
		case via == nil:
			via = n
		default:
			victim = n
		}
	}
	out, err := via.Varve("cluster", "fence", fmt.Sprint(victim.ID()), "--admin", via.Admin)
	require.NoError(t, err, out)
	require.Equal(t, exitFenced, victim.ExitCode())
	cluster.AwaitServed(tables, victim)
	_, err = via.Varve("cluster", "fence", fmt.Sprint(victim.ID()), "--admin", via.Admin)
	require.ErrorContains(t, err, "fenced already")
	victim.Start()
	victim.AwaitReady()
	clients.finish(t, cluster)
}

// A node without slots makes a stream that another leads, with all that came with the request.
func TestStreamMadeByNodeWithoutSlots(t *testing.T) {
	cluster := startCluster(t)
	n := cluster.Nodes[0]
	out, err := n.Varve("cluster", "set-slots", "1", "0", "--admin", n.Admin)
	require.NoError(t, err, out)
	cluster.Await("node 1 has no slots", func() bool {
		statuses, err := cluster.Statuses()
		return err == nil && statuses[0].Slots == 0
	})
	for i := range 4 {
		name := fmt.Sprint("made/", i)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+n.HTTP+"/v1/stream/"+name, strings.NewReader("first"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "text/plain")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, http.StatusCreated, answer.StatusCode)
		require.NotEqual(t, n, leader(t, cluster, name, 0))
		out, err := n.Varve("stream", "read", name, "--http", n.HTTP)
		require.NoError(t, err)
		require.Equal(t, "first", out)
	}

	n.Stop()
	n.Start()
	n.AwaitReady()
	slots := func() string {
		out, err := n.Varve("cluster", "nodes", "--admin", n.Admin)
		require.NoError(t, err)
		return out
	}
	require.Contains(t, slots(), "0 (own: 1)", "a restart does not give the slots back")
	out, err = n.Varve("cluster", "undrain", "1", "--admin", n.Admin)
	require.NoError(t, err, out)
	require.NotContains(t, slots(), "own")
}

// The metadata is away for longer than the node timeout. Nobody is fenced for it, appends go on through object segments until
// the backlog is full, and all recovers by itself.
func TestMetadataAway(t *testing.T) {
	seed(t)
	cluster := startCluster(t)
	cluster.NeedsCuts()
	clients := startClients(t, cluster.Nodes...)
	clients.awaitProgress(cluster, 20)
	for range rounds(1) {
		back := cluster.CutMetadata()
		clients.awaitProgress(cluster, 20)
		time.Sleep(5 * time.Second) // node timeout: 3 s
		back()
		clients.awaitProgress(cluster, 20)
	}
	statuses, err := cluster.Statuses()
	require.NoError(t, err)
	for _, s := range statuses {
		require.True(t, s.Live, "node %d", s.ID)
		require.EqualValues(t, 1, s.Epoch, "node %d has not registered anew", s.ID)
	}
	clients.finish(t, cluster)
}

// Every node is killed, and all start again at once.
func TestKillAll(t *testing.T) {
	seed(t)
	cluster := startCluster(t)
	clients := startClients(t, cluster.Nodes...)
	for range rounds(2) {
		clients.awaitProgress(cluster, 20)
		for _, n := range cluster.Nodes {
			n.Kill()
		}
		cluster.Start()
	}
	clients.finish(t, cluster)
}
