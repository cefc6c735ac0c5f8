package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes/batch"
)

// changed is a batch of two records in which change has changed something, with the checksum computed anew.
func changed(change func(raw []byte)) []byte {
	raw := batch.Build([]batch.Record{{Timestamp: 1000, Value: []byte("a")}, {Timestamp: 2000, Value: []byte("b")}}, batch.BuildOptions{})
	change(raw)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func (w *wire) produce(version int16, k *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	w.t.Helper()
	return ask[*kmsg.ProduceResponse](w, version, k).Topics[0].Partitions[0]
}

func (w *wire) fetch(version int16, k *kmsg.FetchRequest) kmsg.FetchResponseTopicPartition {
	w.t.Helper()
	return ask[*kmsg.FetchResponse](w, version, k).Topics[0].Partitions[0]
}

func TestProduceRefusesWhatABatchMayNotBe(t *testing.T) { // case 6
	n := oneNode(t)
	n.create(t, "t", 2, nil)
	w := n.wire(t)
	good := one("good")
	cases := []struct {
		name string
		raw  []byte
		want *kerr.Error
	}{
		{"base offset", changed(func(b []byte) { b[7] = 5 }), kerr.InvalidRecord},
		{"last offset delta", changed(func(b []byte) { b[26]++ }), kerr.InvalidRecord},
		{"fewer records than said", changed(func(b []byte) { b[26]++; b[60]++ }), kerr.CorruptMessage},
		{"length beyond the bytes", changed(func(b []byte) { b[11]++ }), kerr.CorruptMessage},
		{"length below the bytes", changed(func(b []byte) { b[11]-- }), kerr.InvalidRecord},
		{"codec 5", changed(func(b []byte) { b[22] = 5 }), kerr.InvalidRecord},
		{"control bit", changed(func(b []byte) { b[22] = 0x20 }), kerr.InvalidRecord},
		{"log append time", changed(func(b []byte) { b[22] = 0x08 }), kerr.InvalidTimestamp},
		{"transactional", batchOfTransaction(), kerr.UnsupportedVersion},
		{"two batches", slices.Concat(good, good), kerr.InvalidRecord},
		{"no batch", []byte{}, kerr.InvalidRecord},
		{"null", nil, kerr.InvalidRecord},
		{"checksum", flip(good, 17), kerr.CorruptMessage},
		{"a flipped bit in a value", flip(good, len(good)-2), kerr.CorruptMessage},
		{"cut", good[:len(good)-1], kerr.CorruptMessage},
		{"magic 0", messageSet(0), kerr.UnsupportedForMessageFormat}, // case 7
		{"magic 1", messageSet(1), kerr.UnsupportedForMessageFormat},
		{"magic 3", flipTo(good, 16, 3), kerr.UnsupportedForMessageFormat},
	}
	for i, c := range cases {
		k := produceOf("t", 0, c.raw)
		other := kmsg.NewProduceRequestTopicPartition()
		other.Partition, other.Records = 1, slices.Clone(good)
		k.Topics[0].Partitions = append(k.Topics[0].Partitions, other)
		response := ask[*kmsg.ProduceResponse](w, 9, k)
		got := response.Topics[0].Partitions[0]
		require.Equal(t, c.want.Message, errorName(got.ErrorCode), c.name)
		require.Equal(t, int64(-1), got.BaseOffset, c.name)
		require.NotNil(t, got.ErrorMessage, c.name)
		require.Zero(t, response.Topics[0].Partitions[1].ErrorCode, "%s: the other partition", c.name)
		require.Equal(t, int64(i), response.Topics[0].Partitions[1].BaseOffset)
	}
	latest := fetchOf("t", 0, 0)
	latest.MaxWaitMillis = 0
	require.Zero(t, w.fetch(12, latest).HighWatermark, "nothing was appended")
}

func errorName(code int16) string {
	if err := kerr.TypedErrorForCode(code); err != nil {
		return err.Message
	}
	return ""
}

func batchOfTransaction() []byte {
	raw := batch.Build([]batch.Record{{}}, batch.BuildOptions{Producer: &batch.Producer{ID: 1}})
	raw[22] |= 0x10
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func flip(raw []byte, at int) []byte { return flipTo(raw, at, raw[at]^1) }

func flipTo(raw []byte, at int, to byte) []byte {
	raw = slices.Clone(raw)
	raw[at] = to
	return raw
}

// messageSet is one message of the old format.
func messageSet(magic int8) []byte {
	if magic == 0 {
		m := kmsg.MessageV0{Magic: 0, Key: []byte("k"), Value: []byte("v"), MessageSize: 16}
		return m.AppendTo(nil)
	}
	m := kmsg.MessageV1{Magic: 1, Key: []byte("k"), Value: []byte("v"), MessageSize: 24}
	return m.AppendTo(nil)
}

func TestOldProduceVersionsAreAnsweredAndRefused(t *testing.T) { // case 7
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	for version := range int16(3) {
		for _, raw := range [][]byte{messageSet(1), one("x")} {
			require.Equal(t, "UNSUPPORTED_FOR_MESSAGE_FORMAT", errorName(w.produce(version, produceOf("t", 0, raw)).ErrorCode))
		}
	}
}

func TestZstdNeedsProduceVersion7(t *testing.T) { // case 8
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	n.create(t, "plain", 1, nil)
	w := n.wire(t)
	producer := n.client(t, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	record := &kgo.Record{Topic: "t", Value: bytes.Repeat([]byte("zstd"), 1000)}
	require.NoError(t, producer.ProduceSync(t.Context(), record).FirstErr())
	stored := w.fetch(12, fetchOf("t", 0, 0)).RecordBatches
	require.Equal(t, byte(batch.Zstd), stored[22])

	again := slices.Clone(stored)
	batch.SetOffset(again, 0, -1)
	require.Equal(t, "UNSUPPORTED_COMPRESSION_TYPE", errorName(w.produce(6, produceOf("t", 0, again)).ErrorCode))
	old := w.fetch(9, fetchOf("t", 0, 0))
	require.Equal(t, "UNSUPPORTED_COMPRESSION_TYPE", errorName(old.ErrorCode))
	require.Empty(t, old.RecordBatches)
	require.Zero(t, w.produce(6, produceOf("plain", 0, one("x"))).ErrorCode)
	require.NotEmpty(t, w.fetch(9, fetchOf("plain", 0, 0)).RecordBatches, "only where the data is zstd")
}

func TestStoredBatchesHaveAValidChecksum(t *testing.T) { // case 4
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	n.create(t, "stamped", 1, map[string]*string{"message.timestamp.type": str("LogAppendTime")})
	w := n.wire(t)
	before := time.Now().UnixMilli()
	for _, topic := range []string{"t", "stamped"} {
		for _, epoch := range []int32{-1, 0} {
			raw := changed(func([]byte) {})
			batch.SetOffset(raw, 0, epoch)
			got := w.produce(9, produceOf(topic, 0, raw))
			require.Zero(t, got.ErrorCode)
			require.Equal(t, topic == "stamped", got.LogAppendTime >= before, "%d", got.LogAppendTime)
		}
		rest := w.fetch(12, fetchOf(topic, 0, 0)).RecordBatches
		for i := range 2 {
			b, after, err := batch.Next(rest)
			require.NoError(t, err)
			require.NoError(t, b.CheckCRC())
			require.Equal(t, int64(2*i), b.BaseOffset)
			require.Equal(t, topic == "stamped", b.IsLogAppendTime())
			rest = after
		}
		require.Empty(t, rest)
	}
}

func TestAWrongLargestTimestampIsCorrected(t *testing.T) {
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	raw := changed(func(b []byte) { binary.BigEndian.PutUint64(b[35:], math.MaxInt64) })
	require.Zero(t, w.produce(9, produceOf("t", 0, raw)).ErrorCode)
	b, _, err := batch.Next(w.fetch(12, fetchOf("t", 0, 0)).RecordBatches)
	require.NoError(t, err)
	require.NoError(t, b.CheckCRC())
	require.Equal(t, int64(2000), b.MaxTimestamp)
}

func idempotent(id int64, epoch int16, seq int32) []byte {
	return batch.Build([]batch.Record{{Timestamp: 1, Value: []byte("v")}}, batch.BuildOptions{Producer: &batch.Producer{ID: id, Epoch: epoch, BaseSequence: seq}})
}

func TestIdempotentProducer(t *testing.T) { // cases 9, 10, 12
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	id := ask[*kmsg.InitProducerIDResponse](w, 4, kmsg.NewPtrInitProducerIDRequest())
	require.Zero(t, id.ErrorCode)
	require.Zero(t, id.ProducerEpoch)
	send := func(epoch int16, seq int32) kmsg.ProduceResponseTopicPartition {
		return w.produce(9, produceOf("t", 0, idempotent(id.ProducerID, epoch, seq)))
	}
	for seq := range int32(8) {
		require.Equal(t, int64(seq), send(0, seq).BaseOffset)
	}
	for seq := int32(3); seq < 8; seq++ { // the last five
		got := send(0, seq)
		require.Zero(t, got.ErrorCode)
		require.Equal(t, int64(seq), got.BaseOffset, "a duplicate gets its original offset")
	}
	require.Contains(t, []string{"OUT_OF_ORDER_SEQUENCE_NUMBER", "DUPLICATE_SEQUENCE_NUMBER"}, errorName(send(0, 1).ErrorCode))
	require.Equal(t, "OUT_OF_ORDER_SEQUENCE_NUMBER", errorName(send(0, 9).ErrorCode))
	require.Equal(t, "OUT_OF_ORDER_SEQUENCE_NUMBER", errorName(send(1, 5).ErrorCode), "a new epoch begins at 0")
	require.Zero(t, send(1, 0).ErrorCode)
	require.Equal(t, "INVALID_PRODUCER_EPOCH", errorName(send(0, 8).ErrorCode))
	end := w.fetch(12, fetchOf("t", 0, 8))
	require.Equal(t, int64(9), end.HighWatermark, "nothing was appended twice")

	unknown := w.produce(9, produceOf("t", 0, idempotent(id.ProducerID+1000, 0, 77)))
	require.Zero(t, unknown.ErrorCode, "a producer that is not known may begin anywhere")
}

func TestInitProducerIdNeverRunsOutOfEpochs(t *testing.T) { // case 12
	w := oneNode(t).wire(t)
	k := kmsg.NewPtrInitProducerIDRequest()
	first := ask[*kmsg.InitProducerIDResponse](w, 4, k)
	k.ProducerID, k.ProducerEpoch = first.ProducerID, math.MaxInt16-1
	second := ask[*kmsg.InitProducerIDResponse](w, 4, k)
	require.Zero(t, second.ErrorCode)
	require.NotEqual(t, first.ProducerID, second.ProducerID)
	require.Zero(t, second.ProducerEpoch)
}

func TestTransactionsAreRefused(t *testing.T) {
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	k := kmsg.NewPtrInitProducerIDRequest()
	k.TransactionalID = str("tx")
	require.Equal(t, "UNSUPPORTED_VERSION", errorName(ask[*kmsg.InitProducerIDResponse](w, 4, k).ErrorCode))
	produce := produceOf("t", 0, one("x"))
	produce.TransactionID = str("tx")
	require.Equal(t, "UNSUPPORTED_VERSION", errorName(w.produce(9, produce).ErrorCode))
}

func TestAcks(t *testing.T) { // case 13
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	acks := func(acks int16, raw []byte) *kmsg.ProduceRequest {
		k := produceOf("t", 0, raw)
		k.Acks = acks
		return k
	}
	require.Zero(t, w.produce(9, acks(1, one("x"))).ErrorCode)
	require.Zero(t, w.produce(9, acks(-1, one("x"))).ErrorCode)
	require.Equal(t, "INVALID_REQUIRED_ACKS", errorName(w.produce(9, acks(2, one("x"))).ErrorCode))
	w.send(9, acks(0, one("x")))
	require.Equal(t, int64(3), w.produce(9, acks(1, one("x"))).BaseOffset, "the next answer is that of the next request")

	w.send(9, acks(0, one("x")[:50]))
	require.Empty(t, w.closed(), "no byte, and the connection is closed")
}

func TestMaxMessageBytes(t *testing.T) {
	n := oneNode(t)
	n.create(t, "small", 1, map[string]*string{"max.message.bytes": str("1000")})
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	large := one(strings.Repeat("x", 1000))
	require.Equal(t, "MESSAGE_TOO_LARGE", errorName(w.produce(9, produceOf("small", 0, large)).ErrorCode))
	require.Zero(t, w.produce(9, produceOf("t", 0, large)).ErrorCode)
	require.Equal(t, "MESSAGE_TOO_LARGE", errorName(w.produce(9, produceOf("t", 0, one(strings.Repeat("x", 1048588)))).ErrorCode))
}

func TestDecompressionBombsAreRefused(t *testing.T) {
	n := oneNode(t, func(o *Options) { o.MaxDecompressedBytes = 1 << 20 })
	n.create(t, "t", 1, nil)
	producer := n.client(t, kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerBatchMaxBytes(8<<20))
	err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: make([]byte, 4<<20)}).FirstErr()
	require.ErrorIs(t, err, kerr.MessageTooLarge)

	n = oneNode(t)
	n.create(t, "t", 1, nil)
	large := n.client(t, kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerBatchMaxBytes(32<<20))
	require.NoError(t, large.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: make([]byte, 20<<20)}).FirstErr())
}

func TestProduceTimesOut(t *testing.T) {
	s := newSite(t)
	n := s.start()
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	require.Zero(t, w.produce(9, produceOf("t", 0, one("first"))).ErrorCode, "the stream is open")
	s.store.SetOutage(true)
	k := produceOf("t", 0, one(strings.Repeat("x", 900_000))) // too large to go inline: waits for the store
	k.TimeoutMillis = 50
	require.Equal(t, "REQUEST_TIMED_OUT", errorName(w.produce(9, k).ErrorCode))
	s.store.SetOutage(false)
	later := fetchOf("t", 0, 1)
	require.NotEmpty(t, w.fetch(12, later).RecordBatches, "it became durable later")
}

func TestProduceToWhatIsNotThere(t *testing.T) {
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", errorName(w.produce(9, produceOf("missing", 0, one("x"))).ErrorCode))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", errorName(w.produce(9, produceOf("t", 1, one("x"))).ErrorCode))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", errorName(w.produce(9, produceOf("t", -1, one("x"))).ErrorCode))
	require.Equal(t, "INVALID_TOPIC_EXCEPTION", errorName(w.produce(9, produceOf("a b", 0, one("x"))).ErrorCode))
	byID := produceOf("", 0, one("x"))
	byID.Topics[0].TopicID = [16]byte{1}
	require.Equal(t, "UNKNOWN_TOPIC_ID", errorName(w.produce(13, byID).ErrorCode))
}
