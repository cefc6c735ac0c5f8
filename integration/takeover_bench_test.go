package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/integration/process"
)

// BenchmarkTakeover kills a leader, which also holds the lease, that has so many streams open and so much unpacked in its log, and measures the
// time to the first append that another node acknowledges. A dead node is found after three to four heartbeats of a second; what follows must not grow with the bytes.
//
//	go test ./integration -run '^$' -bench Takeover -benchtime 5x
func BenchmarkTakeover(b *testing.B) {
	for _, c := range []struct{ streams, megabytes int }{{10, 1}, {10, 100}, {10, 400}, {1000, 1}, {1000, 100}} {
		b.Run(fmt.Sprintf("%d-streams/%d-MB", c.streams, c.megabytes), func(b *testing.B) {
			var acknowledged, done []time.Duration
			for b.Loop() {
				a, d := takeover(b, c.streams, c.megabytes)
				acknowledged, done = append(acknowledged, a), append(done, d)
			}
			reportMedian(b, "kill-to-ack", acknowledged)
			reportMedian(b, "takeover", done)
			b.ReportMetric(0, "ns/op")
		})
	}
}

func takeover(b *testing.B, streams, megabytes int) (acknowledged, done time.Duration) {
	cluster := process.NewCluster(b, 2, process.Options{Binary: binary, Args: []string{
		"--heartbeat-interval", "1s", "--node-timeout", "3s", "--lease-ttl", "3s", "--pack-interval", "1h", "--pack-bytes", "2GiB", "--pack-max-bytes", "2GiB", "--wal-backlog-bytes", "2GiB",
		"--pack-segments", "100000",
	}})
	startOnFirst(b, cluster, streams)
	first, second := cluster.Nodes[0], cluster.Nodes[1]

	client := impatientClient(b, cluster)
	defer client.Close()
	fill(b, client, streams, megabytes)

	killed := time.Now()
	first.Kill()
	require.NoError(b, client.ProduceSync(b.Context(), &kgo.Record{Topic: topicName, Partition: 0, Value: []byte("after")}).FirstErr())
	return time.Since(killed), took(b, cluster, second)
}

// reportMedian reports the median and the longest of some times.
func reportMedian(b *testing.B, what string, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Milliseconds()), what+"-ms")
	b.ReportMetric(float64(times[len(times)-1].Milliseconds()), what+"-longest-ms")
}

// startOnFirst starts two nodes, the first of which leads a topic of so many partitions.
func startOnFirst(b *testing.B, cluster *process.Cluster, partitions int) {
	first, second := cluster.Nodes[0], cluster.Nodes[1]
	first.Start()
	first.AwaitReady()
	createTopic(b, []string{first.Kafka}, topicName, int32(partitions))
	second.Start()
	second.AwaitReady()
}

// fill appends to every partition, so that all streams are open and have something in the log.
func fill(b *testing.B, client *kgo.Client, streams, megabytes int) {
	ctx, cancel := context.WithTimeout(b.Context(), drainTime)
	defer cancel()
	value := make([]byte, 100_000)
	for i := range max(streams, megabytes*10) {
		size := len(value)
		if megabytes*10 < streams {
			size = megabytes * 1_000_000 / streams
		}
		client.Produce(ctx, &kgo.Record{Topic: topicName, Partition: int32(i % streams), Value: value[:size]}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	require.NoError(b, client.Flush(ctx))
}

var takeoverDone = regexp.MustCompile(`msg="takeover done".* took=(\S+)`)

// took is how long the takeover took by the log of the node that did it.
func took(b *testing.B, cluster *process.Cluster, by *process.Node) time.Duration {
	var found []string
	cluster.Await("the takeover is done", func() bool {
		found = takeoverDone.FindStringSubmatch(by.Log(1 << 20))
		return found != nil
	})
	d, err := time.ParseDuration(found[1])
	require.NoError(b, err)
	return d
}
