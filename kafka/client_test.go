package kafka

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestRecordsComeBackAsTheyWere produces and consumes by franz-go with every codec: keys, values, headers, timestamps, nulls and empties.
func TestRecordsComeBackAsTheyWere(t *testing.T) { // case 2
	n := oneNode(t)
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			n.create(t, "codec-"+name, 3, nil)
			producer := n.client(t, kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			at := time.UnixMilli(1_700_000_000_123)
			var want []*kgo.Record
			for i := range 300 {
				r := &kgo.Record{Topic: "codec-" + name, Partition: int32(i % 3), Timestamp: at.Add(time.Duration(i) * time.Second)}
				switch i % 4 {
				case 0:
					r.Key, r.Value = fmt.Appendf(nil, "key-%d", i), bytes.Repeat([]byte("value"), i)
				case 1:
					r.Key, r.Value = []byte("tombstone"), nil
				case 2:
					r.Key, r.Value = nil, []byte{}
				case 3:
					r.Value, r.Headers = []byte("h"), []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{}}}
				}
				want = append(want, r)
			}
			require.NoError(t, producer.ProduceSync(t.Context(), want...).FirstErr())

			consumer := n.client(t, kgo.ConsumeTopics("codec-"+name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			got := map[string]*kgo.Record{}
			for len(got) < len(want) {
				fetches := consumer.PollFetches(t.Context())
				require.NoError(t, fetches.Err())
				fetches.EachRecord(func(r *kgo.Record) { got[fmt.Sprint(r.Partition, r.Offset)] = r })
			}
			for _, w := range want {
				g := got[fmt.Sprint(w.Partition, w.Offset)]
				require.NotNil(t, g, "%d at %d", w.Partition, w.Offset)
				require.Equal(t, w.Key, g.Key)
				require.Equal(t, w.Value, g.Value)
				require.Equal(t, w.Headers, g.Headers)
				require.True(t, w.Timestamp.Equal(g.Timestamp))
			}
		})
	}
}

// TestConsumersAreWokenByRecords produces to a consumer that waits: records come long before its wait is over.
func TestConsumersAreWokenByRecords(t *testing.T) {
	n := oneNode(t)
	n.create(t, "live", 2, nil)
	consumer := n.client(t, kgo.ConsumeTopics("live"), kgo.FetchMaxWait(time.Minute), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	producer := n.client(t)
	for i := range 20 {
		record := &kgo.Record{Topic: "live", Value: fmt.Append(nil, i)}
		require.NoError(t, producer.ProduceSync(t.Context(), record).FirstErr())
		fetches := consumer.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		require.Equal(t, record.Value, fetches.Records()[0].Value)
	}
}
