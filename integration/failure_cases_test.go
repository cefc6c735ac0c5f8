package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/integration/history"
	"github.com/varvedb/varve/integration/load"
	"github.com/varvedb/varve/integration/process"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

// quick are the flags of a cluster that finds a dead node in three seconds.
var quick = []string{
	"--heartbeat-interval", "500ms", "--node-timeout", "3s", "--lease-ttl", "2s", "--detector-interval", "250ms", "--coordinator-tick", "500ms",
	"--sync-interval", "1s", "--pack-interval", "700ms", "--merge-interval", "2s", "--shutdown-timeout", "20s",
}

// onS3 are the options of nodes whose objects lie in a store of objectstest.
func onS3(storage string, flags ...string) process.Options {
	return process.Options{
		Binary: binary, Storage: storage, Args: append(slices.Clone(quick), flags...),
		Env: []string{"AWS_ACCESS_KEY_ID=" + objectstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + objectstest.SecretKey},
	}
}

// A leader is paused until its log was recovered, packed away and swept. When it goes on, a put of its next segment could succeed if anything had been forgotten; it acknowledges nothing.
func TestPausedPastEveryCollectionAge(t *testing.T) {
	kinds := map[string][]string{
		"inline":            {"--wal-inline-max", "512KiB"},
		"cut off when back": {"--wal-inline-max", "-1", "--wal-fence", "both"},
	}
	if os.Getenv("VARVE_TEST_LONG") != "" {
		kinds["fenced by both"] = []string{"--wal-inline-max", "-1"}
		kinds["fenced by store"] = []string{"--wal-inline-max", "-1", "--wal-fence", "store"}
		kinds["fenced by layer"] = []string{"--wal-inline-max", "-1", "--wal-fence", "layer"}
	}
	for name, flags := range kinds {
		t.Run(name, func(t *testing.T) {
			flags := append([]string{"--lifecycle-interval", "500ms", "--destroy-grace", "500ms", "--sweep-interval", "500ms", "--log-keep", "1s", "--prepared-ttl", "1s"}, flags...)
			cluster, proxies := process.NewProxiedCluster(t, 3, onS3(objectstest.S3Server(t), flags...))
			cluster.Start()
			clients := startClients(t, cluster.Nodes...)
			clients.awaitProgress(cluster, 20)
			zombie := leader(t, cluster, streamName, 0)
			zombie.Pause()
			late := appendTo(t, zombie, 10)
			cluster.AwaitServed(tables, zombie)
			time.Sleep(4 * time.Second) // several times every age
			clients.awaitProgress(cluster, 3)
			metadata := proxies[zombie.ID()-1].Metadata
			if name == "cut off when back" && metadata != nil {
				metadata.Cut() // it can learn of its fence from the object store alone
			}
			zombie.Signal(syscall.SIGCONT)
			if name == "cut off when back" && metadata != nil {
				time.Sleep(2 * time.Second)
				metadata.Heal()
			}
			require.Equal(t, exitFenced, zombie.ExitCode())
			require.Empty(t, late(), "appends that the paused node acknowledged after all that it had was collected")
			zombie.Start()
			zombie.AwaitReady()
			clients.finish(t, cluster)
		})
	}
}

// Commands on the metadata take five seconds and then fail for longer than the node timeout. Nobody is fenced, and all recovers by itself.
func TestMetadataSlowThenAway(t *testing.T) {
	cluster, proxies := process.NewProxiedCluster(t, 3, onS3(objectstest.S3Server(t)))
	cluster.NeedsCuts()
	cluster.Start()
	clients := startClients(t, cluster.Nodes...)
	clients.awaitProgress(cluster, 20)
	for _, p := range proxies {
		p.Metadata.Slow(600 * time.Millisecond) // each way, of each of about four exchanges
	}
	time.Sleep(6 * time.Second)
	clients.awaitProgress(cluster, 5)
	for _, p := range proxies {
		p.Metadata.Cut()
	}
	time.Sleep(6 * time.Second) // node timeout: 3 s
	for _, p := range proxies {
		p.Metadata.Heal()
	}
	clients.awaitProgress(cluster, 20)
	time.Sleep(5 * time.Second) // longer than any wrong judgement would take
	statuses, err := cluster.Statuses()
	require.NoError(t, err)
	for _, s := range statuses {
		require.True(t, s.Live, "node %d", s.ID)
		require.EqualValues(t, 1, s.Epoch, "node %d registered anew", s.ID)
	}
	createTopic(t, cluster.Kafka(), "made-afterwards", 3)
	clients.finish(t, cluster)
}

// The object store answers 503, or does not answer, while a dead leader's log is taken over. Once it heals everything drains.
func TestObjectStoreFailsDuringTakeover(t *testing.T) {
	kinds := map[string]objectstest.HTTPFault{"503": objectstest.SlowDown, "answers are lost": objectstest.ResetAfter}
	if os.Getenv("VARVE_TEST_LONG") != "" {
		kinds["stalls"], kinds["cut bodies"] = objectstest.Stall, objectstest.CutBody
	}
	for name, fault := range kinds {
		t.Run(name, func(t *testing.T) {
			store := newFaultyStore(t, func(n int, _ *http.Request) objectstest.HTTPFault {
				if n%4 == 0 && fault != objectstest.SlowDown {
					return objectstest.None
				}
				return fault
			})
			cluster := process.NewCluster(t, 3, onS3(store.url, "--wal-inline-max", "-1", "--pack-interval", "10m"))
			cluster.Start()
			clients := startClients(t, cluster.Nodes...)
			clients.awaitProgress(cluster, 50)
			victim := leader(t, cluster, streamName, 0)
			store.failing.Store(true)
			victim.Kill()
			time.Sleep(faultTime()) // dead after 3 s, taken over meanwhile
			store.failing.Store(false)
			cluster.AwaitServed(tables, victim)
			clients.awaitProgress(cluster, 20)
			victim.Start()
			victim.AwaitReady()
			clients.finish(t, cluster)
		})
	}
}

// An idempotent producer has batches in flight when its leader dies, and again when the next one does; then it is idle until its id has expired, and goes on.
// Five batches in flight at once, which this client does not do, are in the tests of nodes.
func TestProducerOverTwoMovesAndExpiry(t *testing.T) {
	cluster, proxies := process.NewProxiedCluster(t, 3, onS3(objectstest.S3Server(t), "--wal-inline-max", "-1", "--producer-id-expiration", "1s", "--housekeep-interval", "200ms"))
	cluster.Start()
	createTopic(t, cluster.Kafka(), "five", 1)
	cluster.AwaitServed([]string{"five"})
	seen := history.New("five/0")
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Kafka()...), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(5000),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(2000), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.MetadataMinAge(50*time.Millisecond), kgo.RecordRetries(1<<30))
	require.NoError(t, err)
	defer client.Close()
	number := 0
	var givenUp atomic.Int64
	var failed []error
	var mu sync.Mutex
	send := func(count int) {
		for range count {
			n := number
			number++
			client.Produce(context.Background(), &kgo.Record{Topic: "five", Value: []byte(history.Value("p", n)), Headers: []kgo.RecordHeader{{Key: "pad", Value: make([]byte, 1500)}}},
				func(r *kgo.Record, err error) {
					if load.GaveUp(err) {
						seen.GaveUp("p", n)
						givenUp.Add(1)
						return
					}
					if err != nil {
						mu.Lock()
						defer mu.Unlock()
						failed = append(failed, fmt.Errorf("record %d: %w", n, err))
						return
					}
					seen.Acknowledged(history.Ack{Writer: "p", Number: n, Offset: r.Offset})
				})
		}
	}
	for move := range 2 {
		old := leader(t, cluster, "five", 0)
		proxies[old.ID()-1].Objects.Slow(100 * time.Millisecond) // so that requests wait
		send(200)
		want := seen.Acks() + 20
		cluster.Await("some of many are acknowledged", func() bool { return seen.Acks() >= want })
		old.Kill()
		cluster.AwaitServed([]string{"five"}, old)
		proxies[old.ID()-1].Objects.Heal()
		t.Logf("move %d with %d records waiting", move, client.BufferedProduceRecords())
		old.Start()
		old.AwaitReady()
	}
	flush := func() {
		ctx, cancel := context.WithTimeout(t.Context(), drainTime)
		defer cancel()
		require.NoError(t, client.Flush(ctx), "%d records wait", client.BufferedProduceRecords())
	}
	flush()
	for range 2 {
		time.Sleep(3 * time.Second) // the producer's id expires
		send(50)
		flush()
		old := leader(t, cluster, "five", 0)
		old.Kill()
		cluster.AwaitServed([]string{"five"}, old)
		old.Start()
		old.AwaitReady()
	}
	send(50)
	flush()
	require.Empty(t, failed)
	ctx, cancel := context.WithTimeout(t.Context(), drainTime)
	defer cancel()
	sure := number - int(givenUp.Load())
	final, err := load.ReadPartition(ctx, cluster.Kafka(), "five", 0, int64(sure))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(final), sure)
	require.LessOrEqual(t, len(final), number)
	require.Empty(t, seen.Check(final))
	cluster.Check()
}
