package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/integration/process"
)

// TestMetadataSurvivesKill9 kills the process while it makes, alters and deletes topics and appends to them. Each time the metadata must open again
// and every invariant of it must hold.
func TestMetadataSurvivesKill9(t *testing.T) {
	random := seed(t)
	node := process.New(t, process.Options{Binary: binary, Args: []string{"--pack-interval", "100ms", "--merge-interval", "300ms", "--lifecycle-interval", "100ms",
		"--destroy-grace", "100ms", "--wal-inline-max", "600B"}})
	for round := range rounds(8) {
		node.Start()
		ctx, cancel := context.WithCancel(t.Context())
		var working sync.WaitGroup
		for worker := range 4 {
			working.Go(func() { churn(ctx, node.Kafka, fmt.Sprintf("churn-%d-%d", round, worker)) })
		}
		time.Sleep(time.Duration(200+random.IntN(500)) * time.Millisecond)
		node.Kill()
		cancel()
		working.Wait()
		out, err := node.Inspect("check")
		require.NoError(t, err, "round %d: %s", round, out)
	}
	out, err := node.Inspect("--keyspace", "table")
	require.NoError(t, err)
	require.NotEmpty(t, out, "the clients made no topic")
}

// churn makes, fills, alters and deletes topics until ctx ends. What fails is tried no further: the node is being killed.
func churn(ctx context.Context, seed, prefix string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.RetryTimeout(time.Second), kgo.RecordDeliveryTimeout(time.Second), kgo.AllowAutoTopicCreation())
	if err != nil {
		return
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	keep := "3600000"
	for i := 0; ctx.Err() == nil; i++ {
		topic := fmt.Sprintf("%s-%d", prefix, i)
		_, _ = admin.CreateTopic(ctx, 3, -1, nil, topic)
		for range 20 {
			client.Produce(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 300)}, nil)
		}
		_ = client.Flush(ctx)
		_, _ = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &keep}}, topic)
		if i%2 == 0 {
			_, _ = admin.DeleteTopics(ctx, topic)
		}
	}
}
