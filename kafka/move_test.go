package kafka

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestIdempotentProducerAcrossAMove stops one of two nodes in the middle of producing: every record is there once, in order.
func TestIdempotentProducerAcrossAMove(t *testing.T) { // case 10
	s := newSite(t)
	first, second := s.start(), s.start()
	const partitions, records = 4, 400
	first.create(t, "t", partitions, nil)
	seeds := kgo.SeedBrokers(first.addr, second.addr)
	producer := second.client(t, seeds, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))
	var wait sync.WaitGroup
	acknowledged := make(chan struct{}, partitions*records)
	for i := range records {
		for p := range partitions {
			wait.Add(1)
			producer.Produce(t.Context(), &kgo.Record{Topic: "t", Partition: int32(p), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
				defer wait.Done()
				if err != nil {
					t.Errorf("produce: %v", err)
				}
				acknowledged <- struct{}{}
			})
		}
		if i == records/2 {
			for range partitions * 10 { // in the middle of it
				<-acknowledged
			}
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_ = first.server.Shutdown(ctx)
				_ = first.node.Stop(ctx)
			}()
		}
	}
	wait.Wait()

	consumer := second.client(t, kgo.SeedBrokers(second.addr), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := make([][]string, partitions)
	for total := 0; total < partitions*records; {
		fetches := consumer.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, int64(len(got[r.Partition])), r.Offset)
			got[r.Partition] = append(got[r.Partition], string(r.Value))
			total++
		})
	}
	for p := range got {
		for i, value := range got[p] {
			require.Equal(t, fmt.Sprint(i), value, "partition %d offset %d", p, i)
		}
	}
}
