package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/integration/history"
	"github.com/varvedb/varve/integration/load"
	"github.com/varvedb/varve/integration/process"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

// drainTime is how long clients may take to get their last answers once the faults are over.
const drainTime = 60 * time.Second

// seed gives a random source whose seed is logged, or the one of VARVE_TEST_SEED.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := rand.Uint64()
	if text := os.Getenv("VARVE_TEST_SEED"); text != "" {
		var err error
		n, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("seed %d (set VARVE_TEST_SEED to replay)", n)
	return rand.New(rand.NewPCG(n, 0))
}

// placements are where segments of the write-ahead log go.
var placements = map[string][]string{
	"inline": {"--wal-inline-max", "512KiB"},
	"object": {"--wal-inline-max", "-1"},
	"mixed":  {"--wal-inline-max", "600B"},
}

// TestKill9 kills the process at random moments under load. Every acknowledged record must be there once, in order, at the offset that was acknowledged, and
// readers that kept reading must have seen no gap, no repeat and nothing that later vanished.
func TestKill9(t *testing.T) {
	for _, store := range []string{"directory", "s3"} {
		for placement, flags := range placements {
			t.Run(store+"/"+placement, func(t *testing.T) {
				options := process.Options{Binary: binary, Args: append([]string{"--pack-interval", "700ms", "--merge-interval", "2s"}, flags...)}
				if store == "s3" {
					options.Storage = objectstest.S3Server(t)
					options.Env = []string{"AWS_ACCESS_KEY_ID=" + objectstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + objectstest.SecretKey}
				}
				killUnderLoad(t, options, rounds(5))
			})
		}
	}
}

// rounds is how often a fault is put: the given number, or VARVE_TEST_ROUNDS.
func rounds(otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv("VARVE_TEST_ROUNDS")); err == nil {
		return n
	}
	return otherwise
}

func killUnderLoad(t *testing.T, options process.Options, times int) {
	random := seed(t)
	node := process.New(t, options)
	node.Start()
	node.AwaitReady()
	clients := startClients(t, node)
	for round := range times {
		if random.IntN(4) > 0 {
			node.AwaitReady()
		}
		time.Sleep(time.Duration(random.IntN(900)) * time.Millisecond)
		node.Kill()
		node.Start()
		t.Logf("round %d: killed; acknowledged so far: %d", round, clients.acknowledged())
	}
	node.AwaitReady()
	time.Sleep(300 * time.Millisecond)
	clients.stop()
	clients.check(t)

	// A clean stop and another life change nothing.
	require.Zero(t, node.Stop())
	out, err := node.Inspect("check")
	require.NoError(t, err, out)
	node.Start()
	node.AwaitReady()
	clients.check(t)
}

// clients are the writers and readers of a test: a topic of three partitions, and an HTTP stream.
type clients struct {
	kafka   []string
	http    func() string // the c.http of the next node, in turn
	topic   []*history.Stream
	stream  *history.Stream
	writers []interface{ Stop(time.Duration) }
	readers []interface{ Stop() }
}

const (
	topicName  = "events"
	streamName = "rooms/lobby"
)

func startClients(t *testing.T, nodes ...*process.Node) *clients {
	t.Helper()
	c := &clients{stream: history.New(streamName)}
	for _, n := range nodes {
		c.kafka = append(c.kafka, n.Kafka)
	}
	var turn atomic.Int64
	c.http = func() string {
		return nodes[int(turn.Add(1))%len(nodes)].HTTP
	}
	for partition := range 3 {
		c.topic = append(c.topic, history.New(fmt.Sprintf("%s/%d", topicName, partition)))
	}
	createTopic(t, c.kafka, topicName, int32(len(c.topic)))
	require.NoError(t, load.CreateJSONStream(t.Context(), c.http, c.stream.Name))

	c.writers = append(c.writers,
		load.StartKafkaWriter(t, c.kafka, "k1", topicName, c.topic, 3*time.Millisecond, 0),
		load.StartKafkaWriter(t, c.kafka, "k2", topicName, c.topic, 11*time.Millisecond, 2000),
		load.StartHTTPWriter(t, c.http, "h1", c.stream, 2*time.Millisecond),
		load.StartHTTPWriter(t, c.http, "h2", c.stream, 5*time.Millisecond))
	c.readers = append(c.readers,
		load.StartKafkaReader(t, c.kafka, "kr", topicName, c.topic),
		load.StartHTTPReader(t, c.http, "hr", c.stream))
	return c
}

func createTopic(t testing.TB, seeds []string, name string, partitions int32) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(t.Context(), partitions, -1, nil, name)
	require.NoError(t, err)
}

func (c *clients) acknowledged() int {
	n := c.stream.Acks()
	for _, p := range c.topic {
		n += p.Acks()
	}
	return n
}

func (c *clients) stop() {
	for _, w := range c.writers {
		w.Stop(drainTime)
	}
	for _, r := range c.readers {
		r.Stop()
	}
}

// check reads everything from the beginning and compares it with what the clients saw.
func (c *clients) check(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), drainTime)
	defer cancel()
	require.NotZero(t, c.stream.Acks(), "nothing was acknowledged over HTTP")
	for partition, h := range c.topic {
		require.NotZero(t, h.Acks(), "nothing was acknowledged on partition %d", partition)
		final, err := load.ReadPartition(ctx, c.kafka, topicName, int32(partition), int64(h.Acks()))
		require.NoError(t, err)
		require.Empty(t, h.Check(final))
	}
	final, err := load.ReadStream(ctx, c.http, c.stream.Name)
	require.NoError(t, err)
	require.Empty(t, c.stream.Check(final))
}
