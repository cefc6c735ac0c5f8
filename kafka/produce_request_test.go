package kafka

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func drawProduce(t *rapid.T, version int16) *kmsg.ProduceRequest {
	k := kmsg.NewPtrProduceRequest()
	k.Version = version
	k.Acks = rapid.Int16().Draw(t, "acks")
	k.TimeoutMillis = rapid.Int32().Draw(t, "timeout")
	if version >= 3 && rapid.Bool().Draw(t, "transactional") {
		k.TransactionID = kmsg.StringPtr("tx")
	}
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		topic := kmsg.NewProduceRequestTopic()
		if version >= produceTopicIDs {
			copy(topic.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		} else {
			topic.Topic = rapid.StringMatching("[a-z]{0,9}").Draw(t, "topic")
		}
		if version >= produceFlexible && rapid.Bool().Draw(t, "tags") {
			topic.UnknownTags.Set(77, []byte("unknown"))
		}
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition = rapid.Int32().Draw(t, "partition")
			if rapid.Bool().Draw(t, "records") {
				p.Records = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		k.Topics = append(k.Topics, topic)
	}
	return k
}

func TestDecodeProduceAgreesWithKmsg(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := int16(rapid.IntRange(0, 13).Draw(t, "version"))
		want := drawProduce(t, version)
		body := want.AppendTo(nil)
		got, err := decodeProduce(version, body)
		require.NoError(t, err)
		require.Equal(t, want.TransactionID, got.transactionalID)
		require.Equal(t, want.Acks, got.acks)
		require.Equal(t, want.TimeoutMillis, got.timeoutMillis)
		require.Len(t, got.topics, len(want.Topics))
		for i, topic := range want.Topics {
			require.Equal(t, topic.Topic, got.topics[i].ref.name)
			require.Equal(t, topic.TopicID, [16]byte(got.topics[i].ref.id))
			parts := got.partitions[got.topics[i].first:got.topics[i].end]
			require.Len(t, parts, len(topic.Partitions))
			for j, p := range topic.Partitions {
				require.Equal(t, p.Partition, parts[j].index)
				require.Equal(t, i, parts[j].topic)
				require.Equal(t, p.Records == nil, parts[j].records == nil)
				require.True(t, bytes.Equal(p.Records, parts[j].records))
			}
		}
		if cut := rapid.IntRange(0, len(body)-1).Draw(t, "cut"); cut < len(body) {
			_, err = decodeProduce(version, body[:cut])
			require.ErrorIs(t, err, errMalformed)
		}
	})
}

func FuzzDecodeProduce(f *testing.F) {
	k := kmsg.NewPtrProduceRequest()
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = "t", []kmsg.ProduceRequestTopicPartition{{Records: []byte("x")}}
	k.Topics = append(k.Topics, topic)
	for version := range int16(14) {
		k.Version = version
		f.Add(version, k.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		version = max(0, min(version, 13))
		got, err := decodeProduce(version, body)
		if err != nil {
			require.ErrorIs(t, err, errMalformed)
			return
		}
		for _, topic := range got.topics {
			require.LessOrEqual(t, topic.end, len(got.partitions))
		}
		require.LessOrEqual(t, len(got.partitions), len(body))
	})
}
