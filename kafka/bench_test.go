package kafka

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes/batch"
)

// BenchmarkProduce appends batches of 100 KiB over loopback, several in flight, uncompressed.
func BenchmarkProduce(b *testing.B) {
	n := oneNode(b)
	n.create(b, "t", 4, nil)
	client := n.client(b, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1000))
	value := bytes.Repeat([]byte("v"), 10<<10)
	b.SetBytes(int64(len(value)))
	var wait sync.WaitGroup
	for b.Loop() {
		wait.Add(1)
		client.Produce(b.Context(), &kgo.Record{Topic: "t", Value: value}, func(_ *kgo.Record, err error) {
			defer wait.Done()
			if err != nil {
				b.Error(err)
			}
		})
	}
	wait.Wait()
}

// BenchmarkProduceLatency is one small record at a time, from request to answer.
func BenchmarkProduceLatency(b *testing.B) {
	n := oneNode(b)
	n.create(b, "t", 1, nil)
	w := n.wire(b)
	require.NoError(b, w.conn.SetDeadline(time.Now().Add(time.Hour)))
	raw := one("value")
	for b.Loop() {
		if got := w.produce(9, produceOf("t", 0, bytes.Clone(raw))); got.ErrorCode != 0 {
			b.Fatal(errorName(got.ErrorCode))
		}
	}
}

// BenchmarkFetch reads 8 MiB at a time over loopback, from the log cache.
func BenchmarkFetch(b *testing.B) {
	n := oneNode(b)
	n.create(b, "t", 1, nil)
	w := n.wire(b)
	require.NoError(b, w.conn.SetDeadline(time.Now().Add(time.Hour)))
	value := bytes.Repeat([]byte("v"), 1<<19)
	for range 16 {
		raw := batch.Build([]batch.Record{{Value: value}}, batch.BuildOptions{})
		require.Zero(b, w.produce(9, produceOf("t", 0, raw)).ErrorCode)
	}
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, versioned(12, fetchOf("t", 0, 0)), 1)
	body := make([]byte, 0, 9<<20)
	b.SetBytes(16 << 19)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.conn.Write(frame); err != nil {
			b.Fatal(err)
		}
		body = w.into(body)
		if len(body) < 16<<19 {
			b.Fatalf("%d bytes", len(body))
		}
	}
}
