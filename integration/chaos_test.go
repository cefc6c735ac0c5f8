package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/http/admin"
	"github.com/varvedb/varve/integration/history"
	"github.com/varvedb/varve/integration/load"
	"github.com/varvedb/varve/integration/process"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

// Rounds of faults on one cluster, and between two checks.
const (
	roundsPerCluster = 20
	roundsPerCheck   = 5
)

// TestChaos puts faults of every kind on the processes of a cluster and on what lies between them and their stores, one or several at once, while
// clients write and read, streams move, and topics come and go. Every few rounds all heals; then everything that was sent must be acknowledged, readers must get to the end, and
// what the clients saw is checked against what the streams hold. VARVE_TEST_ROUNDS says how many rounds; each cluster has
// a seed in the name of its test, and VARVE_TEST_SEED is that of the first one.
func TestChaos(t *testing.T) {
	n := seed(t).Uint64()
	if given, err := strconv.ParseUint(os.Getenv("VARVE_TEST_SEED"), 10, 64); err == nil {
		n = given
	}
	for left := rounds(10); left > 0; left -= roundsPerCluster {
		ok := t.Run(fmt.Sprintf("seed %d", n), func(t *testing.T) {
			newChaos(t, rand.New(rand.NewPCG(n, 1))).run(min(left, roundsPerCluster))
		})
		if !ok {
			return
		}
		n++
	}
}

// chaos is a cluster that is tormented. Its goroutine is the test's.
type chaos struct {
	t       *testing.T
	random  *rand.Rand
	cluster *process.Cluster
	proxies []process.Proxies
	victims map[*process.Node]*victim
}

// victim is a node with what was done to it and not yet undone.
type victim struct {
	*process.Node
	process.Proxies
	down    bool // killed or asked to stop
	paused  bool
	faulted bool // something is wrong with its stores
}

func newChaos(t *testing.T, random *rand.Rand) *chaos {
	args := []string{
		"--heartbeat-interval", "500ms", "--node-timeout", "3s", "--lease-ttl", "2s", "--detector-interval", "250ms", "--coordinator-tick", "500ms",
		"--sync-interval", "1s", "--pack-interval", "700ms", "--merge-interval", "2s", "--shutdown-timeout", "5s",
		// What can be collected is collected at once.
		"--lifecycle-interval", "1s", "--destroy-grace", "1s", "--sweep-interval", "2s", "--log-keep", "5s", "--prepared-ttl", "30s",
		"--wal-put-timeout", "3s", "--pack-put-timeout", "5s", "--fetch-timeout", "5s",
	}
	names := slices.Sorted(maps.Keys(placements))
	placement := names[random.IntN(len(names))]
	fence := []string{"both", "both", "store", "layer"}[random.IntN(4)]
	routing := []string{"redirect", "proxy"}[random.IntN(2)]
	// Stores that are far away keep more in flight, for faults to hit.
	latency := []time.Duration{0, 5 * time.Millisecond, 25 * time.Millisecond}[random.IntN(3)]
	metadataLatency := latency / 5 // up to 10 ms an exchange
	t.Logf("segments: %s, fence: %s, routing: %s, latency each way: objects %v, metadata %v", placement, fence, routing, latency, metadataLatency)
	args = append(append(args, placements[placement]...), "--wal-fence", fence, "--routing", routing)
	c := &chaos{t: t, random: random, victims: map[*process.Node]*victim{}}
	c.cluster, c.proxies = process.NewProxiedCluster(t, 3, process.Options{
		Binary: binary, Storage: objectstest.S3Server(t), Args: args,
		Env: []string{"AWS_ACCESS_KEY_ID=" + objectstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + objectstest.SecretKey},
	})
	for i, n := range c.cluster.Nodes {
		v := &victim{Node: n, Proxies: c.proxies[i]}
		c.victims[n] = v
		v.Objects.Latency(latency)
		metadataProxy(v, func(p process.Line) { p.Latency(metadataLatency) })
	}
	c.cluster.Start()
	return c
}

func (c *chaos) run(rounds int) {
	for cycle := 0; cycle*roundsPerCheck < rounds; cycle++ {
		w := startWorkload(c.t, c.cluster, cycle)
		w.awaitProgress(c.cluster, 5)
		stop := c.operate(w)
		for round := cycle * roundsPerCheck; round < min(rounds, (cycle+1)*roundsPerCheck); round++ {
			c.round(round, w)
		}
		c.t.Logf("meanwhile: %+v", stop())
		began := time.Now()
		c.healAll()
		healed := time.Since(began)
		w.awaitProgress(c.cluster, 5)
		flowing := time.Since(began)
		w.finish(c.cluster)
		c.t.Logf("healed after %v, all clients get on after %v; %d appends were acknowledged", healed.Round(time.Millisecond), flowing.Round(time.Millisecond), w.acknowledged())
		if c.t.Failed() {
			return
		}
	}
}

// round puts one fault, or two at once, lets them act, and undoes some of what was done.
func (c *chaos) round(round int, w *workload) {
	for range 1 + c.random.IntN(4)/3 {
		f := faults[c.random.IntN(len(faults))]
		v, role := c.pick(w)
		c.t.Logf("round %d: %s: node %d (%s)", round, f.name, v.ID(), role)
		f.put(c, v)
	}
	c.act(2500 * time.Millisecond)
	for _, n := range c.cluster.Nodes {
		if c.random.IntN(2) == 0 {
			c.heal(c.victims[n])
		}
	}
}

// act lets time pass in which faults act; it is drawn, up to a most.
func (c *chaos) act(most time.Duration) {
	time.Sleep(time.Duration(c.random.Int64N(int64(most))))
}

// pick chooses a node by what it does.
func (c *chaos) pick(w *workload) (*victim, string) {
	n, role := c.cluster.Nodes[c.random.IntN(len(c.cluster.Nodes))], "any"
	switch c.random.IntN(4) {
	case 0:
		if statuses, err := c.ask(); err == nil {
			for _, s := range statuses {
				if s.Controller {
					n, role = c.cluster.Node(s.ID), "lease holder"
				}
			}
		}
	case 1, 2:
		table, bucket := w.topic, c.random.IntN(len(w.partitions))
		if c.random.IntN(4) == 0 {
			table, bucket = w.stream.Name, 0
		}
		if streams, err := c.cluster.Streams(table, c.unwell()...); err == nil && bucket < len(streams) && streams[bucket].Leader > 0 {
			n, role = c.cluster.Node(streams[bucket].Leader), fmt.Sprintf("leader of %s/%d", table, bucket)
		}
	}
	return c.victims[n], role
}

// unwell lists nodes that may not answer.
func (c *chaos) unwell() (all []*process.Node) {
	for n, v := range c.victims {
		if v.down || v.paused || v.faulted {
			all = append(all, n)
		}
	}
	return all
}

func (c *chaos) ask() ([]nodes.NodeStatus, error) { return c.cluster.Statuses(c.unwell()...) }

// fault is something that is done to a node or to all.
type fault struct {
	name string
	put  func(*chaos, *victim)
}

var faults = []fault{
	{"kill -9", func(c *chaos, v *victim) { c.kill(v) }},
	{"kill -9, started at once", func(c *chaos, v *victim) { c.kill(v); c.heal(v) }},
	{"SIGTERM", func(c *chaos, v *victim) { c.terminate(v) }},
	{"SIGTERM, started at once", func(c *chaos, v *victim) { c.terminate(v); c.heal(v) }},
	{"paused for a moment", func(c *chaos, v *victim) { c.pause(v); c.act(time.Second); c.resume(v) }},
	{"paused", func(c *chaos, v *victim) { c.pause(v) }},
	{"paused until it is fenced and collected", func(c *chaos, v *victim) { c.pause(v); c.act(6 * time.Second); c.resume(v) }},
	{"cut off from the metadata", func(_ *chaos, v *victim) { v.faulted = true; metadataProxy(v, process.Line.Cut) }},
	{"metadata does not answer", func(_ *chaos, v *victim) { v.faulted = true; metadataProxy(v, process.Line.Freeze) }},
	{"metadata is slow", func(c *chaos, v *victim) {
		by := time.Duration(c.random.IntN(300)) * time.Millisecond
		v.faulted = true
		metadataProxy(v, func(p process.Line) { p.Slow(by) })
	}},
	{"cut off from the objects", func(_ *chaos, v *victim) { v.faulted = true; v.Objects.Cut() }},
	{"objects do not answer", func(_ *chaos, v *victim) { v.faulted = true; v.Objects.Freeze() }},
	{"objects are slow", func(c *chaos, v *victim) {
		v.faulted = true
		v.Objects.Slow(time.Duration(c.random.IntN(1500)) * time.Millisecond)
	}},
	{"metadata is away from all", func(c *chaos, _ *victim) { c.outage(true, false) }},
	{"objects are away from all", func(c *chaos, _ *victim) { c.outage(false, true) }},
	{"both stores are away from all", func(c *chaos, _ *victim) { c.outage(true, true) }},
	{"restart storm", func(c *chaos, _ *victim) { c.storm() }},
}

func metadataProxy(v *victim, do func(process.Line)) {
	if v.Metadata != nil {
		do(v.Metadata)
	}
}

func (c *chaos) kill(v *victim) {
	v.Kill()
	v.down, v.paused = true, false
}

func (c *chaos) terminate(v *victim) {
	c.resume(v)
	v.Signal(syscall.SIGTERM)
	v.down = true
}

func (c *chaos) pause(v *victim) {
	v.Pause()
	v.paused = true
}

func (c *chaos) resume(v *victim) {
	v.Signal(syscall.SIGCONT)
	v.paused = false
}

// outage takes stores from all nodes for a time.
func (c *chaos) outage(metadata, objects bool) {
	for _, p := range c.proxies {
		if metadata && p.Metadata != nil {
			p.Metadata.Cut()
		}
		if objects {
			p.Objects.Cut()
		}
	}
	c.act(6 * time.Second)
	for _, n := range c.cluster.Nodes {
		c.healStores(c.victims[n])
	}
}

// storm kills and starts nodes in quick succession.
func (c *chaos) storm() {
	for range 4 {
		v := c.victims[c.cluster.Nodes[c.random.IntN(len(c.cluster.Nodes))]]
		c.kill(v)
		c.heal(v)
		c.act(300 * time.Millisecond)
	}
}

func (c *chaos) healStores(v *victim) {
	v.Objects.Heal()
	metadataProxy(v, process.Line.Heal)
	v.faulted = false
}

// heal undoes what was done to a node, and starts it when it has ended, as a supervisor does.
func (c *chaos) heal(v *victim) {
	c.healStores(v)
	if v.paused {
		c.resume(v)
	}
	if v.down {
		v.ExitCode() // one that was asked to stop may take its time
	}
	if v.Running() {
		return
	}
	if code := v.ExitCode(); !v.down && code != exitFenced {
		c.t.Errorf("node %d ended with code %d, and nobody asked it to:\n%s", v.ID(), code, v.Log(4000))
	}
	v.down = false
	v.Start()
}

// healAll heals every node, and starts those that end because they were fenced, until all have been ready and alive for a while: one that
// was judged while it was away learns of it a moment later.
func (c *chaos) healAll() {
	c.t.Helper()
	since := time.Now()
	c.cluster.Await("all nodes are ready and alive", func() bool {
		for _, n := range c.cluster.Nodes {
			c.heal(c.victims[n])
			if !isReady(n) {
				since = time.Now()
			}
		}
		if statuses, err := c.cluster.Statuses(); err != nil || !allLive(statuses) {
			since = time.Now()
		}
		return time.Since(since) > time.Second
	})
}

func allLive(all []nodes.NodeStatus) bool {
	for _, s := range all {
		if !s.Live {
			return false
		}
	}
	return true
}

func isReady(n *process.Node) bool {
	client := &http.Client{Timeout: time.Second}
	answer, err := client.Get("http://" + n.Admin + "/ready")
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// operate makes and deletes topics, moves streams and rebalances, as often as nodes let it, until it is stopped. What it is refused is nobody's mistake.
// The stop tells how much of it was done.
func (c *chaos) operate(w *workload) (stop func() operations) {
	ctx, cancel := context.WithCancel(c.t.Context())
	random := rand.New(rand.NewPCG(c.random.Uint64(), 2))
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka...), kgo.RetryTimeout(3*time.Second))
	require.NoError(c.t, err)
	topics := kadm.NewClient(client)
	var done sync.WaitGroup
	var did operations
	count := func(n *int, err error) {
		if err == nil {
			*n++
		}
	}
	done.Go(func() {
		defer client.Close()
		for i := 0; ctx.Err() == nil; i++ {
			try, cancel := context.WithTimeout(ctx, 5*time.Second)
			via := c.cluster.Nodes[random.IntN(len(c.cluster.Nodes))]
			name := fmt.Sprint("passing-", w.topic, "-", i/2)
			switch random.IntN(3) {
			case 0:
				if i%2 == 0 {
					_, err := topics.CreateTopic(try, 4, -1, nil, name)
					count(&did.created, err)
				} else {
					_, err := topics.DeleteTopic(try, fmt.Sprint("passing-", w.topic, "-", random.IntN(i/2+1)))
					count(&did.deleted, err)
				}
			case 1:
				count(&did.transfers, act(try, via, "/admin/transfer", admin.StreamAction{Stream: w.topic, Bucket: random.IntN(len(w.partitions)), To: 1 + random.Int64N(3)}))
				count(&did.transfers, act(try, via, "/admin/transfer", admin.StreamAction{Stream: w.stream.Name, To: 1 + random.Int64N(3)}))
			case 2:
				count(&did.rebalances, act(try, via, "/admin/rebalance", struct{}{}))
			}
			cancel()
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(random.IntN(800)) * time.Millisecond):
			}
		}
	})
	return func() operations { cancel(); done.Wait(); return did }
}

// operations counts what was done.
type operations struct{ created, deleted, transfers, rebalances int }

// act asks a node for an action of its admin API.
func act(ctx context.Context, via *process.Node, path string, action any) error {
	body, err := json.Marshal(action)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+via.Admin+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	return nil
}

// workload is a topic of three partitions and an HTTP stream with writers and readers, whose tables are deleted when it ends.
type workload struct {
	t          *testing.T
	kafka      []string
	http       func() string
	topic      string
	partitions []*history.Stream
	stream     *history.Stream
	writers    []interface{ Stop(time.Duration) }
	readers    map[string]interface{ Stop() }
}

func startWorkload(t *testing.T, cluster *process.Cluster, number int) *workload {
	t.Helper()
	w := &workload{t: t, kafka: cluster.Kafka(), topic: fmt.Sprint("events-", number), stream: history.New(fmt.Sprint("rooms/", number))}
	var turn atomic.Int64
	w.http = func() string { return cluster.Nodes[int(turn.Add(1))%len(cluster.Nodes)].HTTP }
	for partition := range 3 {
		w.partitions = append(w.partitions, history.New(fmt.Sprintf("%s/%d", w.topic, partition)))
	}
	createTopic(t, w.kafka, w.topic, int32(len(w.partitions)))
	require.NoError(t, load.CreateJSONStream(t.Context(), w.http, w.stream.Name))
	w.writers = append(w.writers,
		load.StartKafkaWriter(t, w.kafka, "k1", w.topic, w.partitions, 15*time.Millisecond, 0),
		load.StartKafkaWriter(t, w.kafka, "k2", w.topic, w.partitions, 40*time.Millisecond, 2000),
		load.StartHTTPWriter(t, w.http, "h1", w.stream, 10*time.Millisecond),
		load.StartHTTPWriter(t, w.http, "h2", w.stream, 25*time.Millisecond))
	w.readers = map[string]interface{ Stop() }{
		"kr": load.StartKafkaReader(t, w.kafka, "kr", w.topic, w.partitions),
		"hr": load.StartHTTPReader(t, w.http, "hr", w.stream),
	}
	return w
}

func (w *workload) histories() []*history.Stream {
	return append(w.partitions[:len(w.partitions):len(w.partitions)], w.stream)
}

func (w *workload) acknowledged() (n int) {
	for _, s := range w.histories() {
		n += s.Acks()
	}
	return n
}

// awaitProgress waits until every stream has some more acknowledged appends.
func (w *workload) awaitProgress(cluster *process.Cluster, more int) {
	w.t.Helper()
	for _, s := range w.histories() {
		want := s.Acks() + more
		cluster.Await(fmt.Sprintf("%s has %d acknowledged appends", s.Name, want), func() bool { return s.Acks() >= want })
	}
}

// finish waits until everything is acknowledged and read, checks it, and deletes the tables.
func (w *workload) finish(cluster *process.Cluster) {
	w.t.Helper()
	for _, writer := range w.writers {
		writer.Stop(drainTime)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), drainTime)
	defer cancel()
	for _, s := range w.histories() {
		final := w.read(ctx, s)
		reader := "kr"
		if s == w.stream {
			reader = "hr"
		}
		cluster.Await(fmt.Sprintf("reader %s got to the end of %s, %d", reader, s.Name, len(final)), func() bool { return s.ReadUpTo(reader) >= int64(len(final)) })
		for _, problem := range s.Check(final) {
			w.t.Error(problem)
		}
	}
	for _, r := range w.readers {
		r.Stop()
	}
	cluster.Check()
	w.delete(ctx)
}

// read gives the whole content of a stream.
func (w *workload) read(ctx context.Context, s *history.Stream) []history.Read {
	w.t.Helper()
	if s == w.stream {
		final, err := load.ReadStream(ctx, w.http, s.Name)
		require.NoError(w.t, err)
		return final
	}
	final, err := load.ReadPartition(ctx, w.kafka, w.topic, int32(slices.Index(w.partitions, s)), int64(s.Acks()))
	require.NoError(w.t, err)
	return final
}

func (w *workload) delete(ctx context.Context) {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka...))
	require.NoError(w.t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopic(ctx, w.topic)
	require.NoError(w.t, err)
}
