package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/http/admin"
	"github.com/varvedb/varve/integration/process"
)

// pace is how a benchmark appends to its one stream.
type pace struct {
	name     string
	record   int           // bytes
	every    time.Duration // between records
	inflight int           // records that wait for their acknowledgement
}

// paces: a stream with a small record now and then, and one with 20 MB/s.
var paces = []pace{{"quiet", 100, 10 * time.Millisecond, 1}, {"busy", 100_000, 5 * time.Millisecond, 400}}

// BenchmarkTransfer moves a stream to and fro between two nodes and measures the longest time without an acknowledgement that its writer sees.
//
//	go test ./integration -run '^$' -bench 'Transfer|CleanStop' -benchtime 10x
func BenchmarkTransfer(b *testing.B) {
	for _, p := range paces {
		b.Run(p.name, func(b *testing.B) {
			cluster, w := startPaced(b, p, 1)
			for i := range b.N {
				via := cluster.Nodes[0]
				streams, err := cluster.Streams(topicName)
				require.NoError(b, err)
				to := 3 - streams[0].Leader
				w.measure(func() {
					require.NoError(b, act(b.Context(), via, "/admin/transfer", admin.StreamAction{Stream: topicName, To: to}), "transfer %d", i)
					cluster.Await("the stream has moved", func() bool {
						streams, err = cluster.Streams(topicName)
						return err == nil && streams[0].Leader == to
					})
				})
			}
			w.report(b)
		})
	}
}

// BenchmarkCleanStop stops the leader of a stream by SIGTERM and measures the longest time without an acknowledgement that its writer sees.
func BenchmarkCleanStop(b *testing.B) {
	for _, p := range paces {
		b.Run(p.name, func(b *testing.B) { cleanStop(b, p, 1) })
	}
	b.Run("quiet-among-1000", func(b *testing.B) { cleanStop(b, paces[0], 1000) })
}

func cleanStop(b *testing.B, p pace, streams int) {
	cluster, w := startPaced(b, p, streams)
	for range b.N {
		all, err := cluster.Streams(topicName)
		require.NoError(b, err)
		leader := cluster.Node(all[0].Leader)
		w.measure(func() { require.Zero(b, leader.Stop()) })
		leader.Start()
		leader.AwaitReady()
	}
	w.report(b)
}

// startPaced starts a cluster that has one topic of so many streams, all on the first node and all with records, and a writer of the first.
func startPaced(b *testing.B, p pace, streams int) (*process.Cluster, *pacedWriter) {
	cluster := process.NewCluster(b, 2, process.Options{Binary: binary, Args: []string{"--heartbeat-interval", "1s", "--node-timeout", "3s", "--lease-ttl", "3s"}})
	startOnFirst(b, cluster, streams)
	client := impatientClient(b, cluster)
	fill(b, client, streams, 1)
	client.Close()
	return cluster, startPacedWriter(b, cluster, p)
}

// impatientClient writes to partitions by number, one batch a record if it can, and looks for a new leader every 20 ms.
func impatientClient(b *testing.B, cluster *process.Cluster) *kgo.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Kafka()...), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.MetadataMinAge(20*time.Millisecond), kgo.RecordRetries(1<<30), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(b, err)
	return client
}

// pacedWriter appends to partition 0 at its pace until the benchmark ends. No append may fail.
type pacedWriter struct {
	gaps []time.Duration // the longest of each measurement

	mu      sync.Mutex
	last    time.Time // of the last acknowledgement
	longest time.Duration
}

func startPacedWriter(b *testing.B, cluster *process.Cluster, p pace) *pacedWriter {
	client := impatientClient(b, cluster)
	w := &pacedWriter{last: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { w.write(ctx, b, client, p) })
	b.Cleanup(func() {
		cancel()
		done.Wait()
		client.Close()
	})
	w.measure(func() {})
	w.gaps = nil
	return w
}

func (w *pacedWriter) write(ctx context.Context, b *testing.B, client *kgo.Client, p pace) {
	room := make(chan struct{}, p.inflight)
	value := make([]byte, p.record)
	ticks := time.NewTicker(p.every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		select {
		case <-ctx.Done():
			return
		case room <- struct{}{}:
		}
		client.Produce(ctx, &kgo.Record{Topic: topicName, Value: value}, func(_ *kgo.Record, err error) {
			<-room
			if err == nil {
				w.acknowledged()
			} else if ctx.Err() == nil {
				b.Error(err)
			}
		})
	}
}

func (w *pacedWriter) acknowledged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.longest = max(w.longest, now.Sub(w.last))
	w.last = now
}

// measure runs what should be noticed, and notes the longest time without an acknowledgement from before it until some came after it.
func (w *pacedWriter) measure(what func()) {
	w.await(20)
	w.mu.Lock()
	w.longest = 0
	w.mu.Unlock()
	what()
	w.await(20)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gaps = append(w.gaps, w.longest)
}

// await waits for n acknowledgements.
func (w *pacedWriter) await(n int) {
	for range n {
		w.mu.Lock()
		seen := w.last
		w.mu.Unlock()
		for moved := false; !moved; {
			time.Sleep(time.Millisecond)
			w.mu.Lock()
			moved = w.last != seen
			w.mu.Unlock()
		}
	}
}

func (w *pacedWriter) report(b *testing.B) {
	reportMedian(b, "gap", w.gaps)
	b.ReportMetric(0, "ns/op")
}
