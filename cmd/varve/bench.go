package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// benchmark is what a run is told.
type benchmark struct {
	endpoints
	topic      string
	partitions int32
	records    int
	size       int
	linger     time.Duration
	latency    int
	keep       bool
}

func newBench() *cobra.Command {
	b := &benchmark{}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure a cluster by Kafka: throughput, latencies, catch-up",
		Long: `Measure a cluster by Kafka, with an idempotent producer (acks=all), in three parts:
  produce   as fast as it goes, in batches: MB/s and time to acknowledgement
  catch-up  everything is read from the beginning: MB/s
  latency   one record at a time, with a consumer at the tail: time to acknowledgement, time until it is read, and how long after the acknowledgement`,
		Args:              args(cobra.NoArgs),
		PersistentPreRunE: func(*cobra.Command, []string) error { b.resolve(); return nil },
		RunE:              func(c *cobra.Command, _ []string) error { return b.run(c.Context(), c.OutOrStdout()) },
	}
	b.bind(c, kafkaListener)
	c.AddCommand(newBenchTopics(b))
	f := c.Flags()
	f.StringVar(&b.topic, "topic", "", "topic to use, which must be empty; default a new one, deleted afterwards")
	f.Int32Var(&b.partitions, "partitions", 1, "partitions of the topic")
	f.IntVar(&b.records, "records", 1_000_000, "records to produce for throughput")
	f.IntVar(&b.size, "size", 1024, "bytes of a record's value")
	f.DurationVar(&b.linger, "linger", 5*time.Millisecond, "how long the producer gathers a batch")
	f.IntVar(&b.latency, "latency-records", 2000, "records to produce one at a time for latency")
	f.BoolVar(&b.keep, "keep", false, "keep the topic")
	return c
}

func (b *benchmark) run(ctx context.Context, out io.Writer) error {
	if b.partitions < 1 || b.records < 0 || b.size < 8 || b.latency < 0 {
		return &usageError{fmt.Errorf("want at least 1 partition, 8 bytes a record, and no negative count")}
	}
	if b.topic == "" {
		b.topic = fmt.Sprintf("bench-%d", time.Now().UnixNano())
		if err := b.createTopic(ctx); err != nil {
			return err
		}
		if !b.keep {
			defer b.deleteTopic(context.WithoutCancel(ctx))
		}
	}
	fmt.Fprintf(out, "topic %s, %d partitions, records of %d bytes\n", b.topic, b.partitions, b.size)
	for _, part := range []func(context.Context, io.Writer) error{b.produce, b.catchUp, b.measureLatency} {
		if err := part(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

func (b *benchmark) createTopic(ctx context.Context) error {
	return b.withAdmin(ctx, func(ctx context.Context, a *kadm.Client) error {
		answer, err := a.CreateTopic(ctx, b.partitions, -1, nil, b.topic)
		return withMessage(err, answer.ErrMessage)
	})
}

func (b *benchmark) deleteTopic(ctx context.Context) {
	_ = b.withAdmin(ctx, func(ctx context.Context, a *kadm.Client) error {
		_, err := a.DeleteTopics(ctx, b.topic)
		return err
	})
}

func (b *benchmark) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.kafka), kgo.RetryTimeout(topicTimeout),
		// All records have the same value, which would compress to nothing.
		kgo.ProducerBatchCompression(kgo.NoCompression())}, options...)...)
}

// produce writes the records as fast as they are taken.
func (b *benchmark) produce(ctx context.Context, out io.Writer) error {
	if b.records == 0 {
		return nil
	}
	client, err := b.client(kgo.ProducerLinger(b.linger), kgo.ProducerBatchMaxBytes(1_000_000), kgo.MaxBufferedRecords(100_000),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	value := payload(b.size)
	took := newSamples(b.records)
	failed := make(chan error, 1)
	start := time.Now()
	for range b.records {
		sent := time.Now()
		client.Produce(ctx, &kgo.Record{Topic: b.topic, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
				return
			}
			took.add(time.Since(sent))
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return fmt.Errorf("produce: %w", err)
	default:
	}
	b.report(out, "produce", b.records, time.Since(start))
	took.report(out, "  acknowledged after")
	return nil
}

// catchUp reads everything from the beginning.
func (b *benchmark) catchUp(ctx context.Context, out io.Writer) error {
	if b.records == 0 {
		return nil
	}
	client, err := b.client(kgo.ConsumeTopics(b.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(64<<20), kgo.FetchMaxPartitionBytes(8<<20), kgo.MaxConcurrentFetches(4))
	if err != nil {
		return err
	}
	defer client.Close()
	start := time.Now()
	for read := 0; read < b.records; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("catch-up: %w", err)
		}
		read += fetches.NumRecords()
	}
	b.report(out, "catch-up", b.records, time.Since(start))
	return nil
}

func (b *benchmark) report(out io.Writer, part string, records int, took time.Duration) {
	bytes := float64(records) * float64(b.size)
	fmt.Fprintf(out, "%s: %d records in %.2f s, %.1f MB/s, %.0f records/s\n", part, records, took.Seconds(), bytes/1e6/took.Seconds(), float64(records)/took.Seconds())
}
