// Package load runs clients that go on through every fault and record what they saw in a history.
package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/integration/history"
)

// KafkaWriter appends to every partition of a topic with one idempotent producer until it is stopped.
type KafkaWriter struct {
	t          testing.TB
	client     *kgo.Client
	name       string
	topic      string
	partitions []*history.Stream
	pad        string
	cancel     context.CancelFunc
	done       sync.WaitGroup
}

// StartKafkaWriter starts a writer. The histories are those of the partitions, in order; pad is added to no value: it is a header, to make records larger.
func StartKafkaWriter(t testing.TB, seeds []string, name, topic string, partitions []*history.Stream, every time.Duration, pad int, options ...kgo.Opt) *KafkaWriter {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(2 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.MaxBufferedRecords(1000), kgo.RecordRetries(1 << 30), kgo.UnknownTopicRetries(-1), kgo.ProduceRequestTimeout(5 * time.Second), kgo.RequestTimeoutOverhead(2 * time.Second),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &KafkaWriter{t: t, client: client, name: name, topic: topic, partitions: partitions, pad: string(make([]byte, pad)), cancel: cancel}
	for partition := range partitions {
		w.done.Go(func() { w.write(ctx, int32(partition), every) })
	}
	t.Cleanup(func() { w.cancel(); w.client.Close(); w.done.Wait() }) // closed first, since a full buffer holds up the writer
	return w
}

func (w *KafkaWriter) write(ctx context.Context, partition int32, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for number := 0; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		record := &kgo.Record{Topic: w.topic, Partition: partition, Value: []byte(history.Value(w.name, number)),
			Headers: []kgo.RecordHeader{{Key: "pad", Value: []byte(w.pad)}}}
		// The record's own context is never cancelled: a record that was given up could be anywhere.
		w.client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
			if GaveUp(err) {
				w.partitions[partition].GaveUp(w.name, number)
				return
			}
			if err != nil {
				w.t.Errorf("writer %s: record %d of partition %d: %v", w.name, number, partition, err)
				return
			}
			w.partitions[partition].Acknowledged(history.Ack{Writer: w.name, Number: number, Offset: r.Offset})
		})
	}
}

// GaveUp tells whether the client gave up on a record because a broker that it had just connected to was killed before its first answer, which it takes
// for a broker that wants TLS and does not try again.
func GaveUp(err error) bool {
	var first *kgo.ErrFirstReadEOF
	return errors.As(err, &first)
}

// Stop ends the writer and waits until everything that it has sent is acknowledged.
func (w *KafkaWriter) Stop(within time.Duration) {
	w.t.Helper()
	w.cancel()
	w.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := w.client.Flush(ctx); err != nil {
		w.t.Errorf("writer %s: %d records are not acknowledged after %v", w.name, w.client.BufferedProduceRecords(), within)
	}
}

// KafkaReader reads every partition of a topic from its beginning, and goes on at the tail, until it is stopped.
type KafkaReader struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// StartKafkaReader starts a reader.
func StartKafkaReader(t testing.TB, seeds []string, name, topic string, partitions []*history.Stream) *KafkaReader {
	t.Helper()
	from := map[int32]kgo.Offset{}
	for partition := range partitions {
		from[int32(partition)] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.FetchMaxWait(500*time.Millisecond), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &KafkaReader{client: client, cancel: cancel}
	r.done.Go(func() {
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			fetches.EachError(func(topic string, partition int32, err error) {
				var lost *kgo.ErrDataLoss
				switch {
				case errors.As(err, &lost):
					t.Errorf("reader %s: partition %d: %v", name, partition, err)
				case ctx.Err() == nil && !kerr.IsRetriable(err):
					t.Logf("reader %s: partition %d: %v", name, partition, err)
				}
			})
			fetches.EachRecord(func(record *kgo.Record) {
				partitions[record.Partition].Got(name, history.Read{Offset: record.Offset, Value: string(record.Value)})
			})
		}
	})
	t.Cleanup(r.Stop)
	return r
}

// Stop ends the reader.
func (r *KafkaReader) Stop() {
	r.cancel()
	r.done.Wait()
	r.client.Close()
}

// ReadPartition reads a partition from offset 0 to its end, which must be at least atLeast.
func ReadPartition(ctx context.Context, seeds []string, topic string, partition int32, atLeast int64) ([]history.Read, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(0)}}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var all []history.Read
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return all, err
		}
		var high int64 = -1
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			high = p.HighWatermark
			for _, r := range p.Records {
				all = append(all, history.Read{Offset: r.Offset, Value: string(r.Value)})
			}
		})
		if end := int64(len(all)); end >= atLeast && high <= end {
			return all, nil
		}
		if ctx.Err() != nil {
			return all, fmt.Errorf("partition %d: read %d records of at least %d: %w", partition, len(all), atLeast, ctx.Err())
		}
	}
}
