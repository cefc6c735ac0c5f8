package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// measureLatency produces one record at a time and reads it at the tail.
func (b *benchmark) measureLatency(ctx context.Context, out io.Writer) error {
	if b.latency == 0 {
		return nil
	}
	producer, err := b.client(kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer producer.Close()
	consumer, err := b.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{b.topic: {0: kgo.NewOffset().AtEnd()}}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	received, err := b.warmUp(ctx, producer, consumer)
	if err != nil {
		return err
	}
	acknowledged, read, behind := newSamples(b.latency), newSamples(b.latency), newSamples(b.latency)
	value := payload(b.size)
	for i := range b.latency {
		binary.BigEndian.PutUint64(value, uint64(i+1))
		sent := time.Now()
		if err := producer.ProduceSync(ctx, &kgo.Record{Topic: b.topic, Partition: 0, Value: value}).FirstErr(); err != nil {
			return fmt.Errorf("latency: %w", err)
		}
		acked := time.Now()
		at, err := awaitRecord(ctx, received, uint64(i+1))
		if err != nil {
			return fmt.Errorf("latency: %w", err)
		}
		acknowledged.add(acked.Sub(sent))
		read.add(at.Sub(sent))
		behind.add(max(0, at.Sub(acked)))
	}
	fmt.Fprintf(out, "latency: %d records one at a time\n", b.latency)
	acknowledged.report(out, "  acknowledged after")
	read.report(out, "  read at the tail after")
	behind.report(out, "  read after the acknowledgement by")
	return nil
}

// arrival is a record that the consumer got.
type arrival struct {
	number uint64
	at     time.Time
}

// warmUp starts the consumer and sends records until one arrives, so that connections, leaders and the tail are known.
func (b *benchmark) warmUp(ctx context.Context, producer, consumer *kgo.Client) (<-chan arrival, error) {
	received := make(chan arrival, 1024)
	go func() {
		defer close(received)
		for {
			fetches := consumer.PollFetches(ctx)
			now := time.Now()
			if fetches.IsClientClosed() || ctx.Err() != nil {
				return
			}
			fetches.EachRecord(func(r *kgo.Record) {
				select {
				case received <- arrival{binary.BigEndian.Uint64(r.Value), now}:
				case <-ctx.Done():
				}
			})
		}
	}()
	value := make([]byte, max(8, b.size))
	for {
		if err := producer.ProduceSync(ctx, &kgo.Record{Topic: b.topic, Partition: 0, Value: value}).FirstErr(); err != nil {
			return nil, fmt.Errorf("latency: %w", err)
		}
		select {
		case <-received:
			return received, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func awaitRecord(ctx context.Context, received <-chan arrival, number uint64) (time.Time, error) {
	for {
		select {
		case a, ok := <-received:
			if !ok {
				return time.Time{}, fmt.Errorf("the consumer ended")
			}
			if a.number == number {
				return a.at, nil
			}
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-time.After(topicTimeout):
			return time.Time{}, fmt.Errorf("record %d was acknowledged and not read for %v", number, topicTimeout)
		}
	}
}

// payload is a value that does not compress.
func payload(size int) []byte {
	value := make([]byte, size)
	rand.Read(value)
	return value
}

// samples are durations, of which quantiles are told.
type samples struct {
	mu  sync.Mutex
	all []time.Duration
}

func newSamples(n int) *samples { return &samples{all: make([]time.Duration, 0, n)} }

func (s *samples) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
}

func (s *samples) report(out io.Writer, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return
	}
	slices.Sort(s.all)
	at := func(q float64) time.Duration { return s.all[int(q*float64(len(s.all)-1))].Round(time.Microsecond) }
	fmt.Fprintf(out, "%s p50 %v, p99 %v, p99.9 %v, max %v\n", what, at(0.5), at(0.99), at(0.999), at(1))
}
