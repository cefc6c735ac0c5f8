package kafka

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes/batch"
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

func (w *wire) list(version int16, topic string, timestamp int64, epoch int32) kmsg.ListOffsetsResponseTopicPartition {
	w.t.Helper()
	k := kmsg.NewPtrListOffsetsRequest()
	k.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = timestamp, epoch
	t.Partitions = append(t.Partitions, p)
	k.Topics = append(k.Topics, t)
	return ask[*kmsg.ListOffsetsResponse](w, version, k).Topics[0].Partitions[0]
}

func TestListOffsets(t *testing.T) { // case 21
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	n.create(t, "empty", 1, nil)
	w := n.wire(t)
	for _, times := range [][]int64{{1000, 2000}, {5000, 3000}, {4000}} {
		var records []batch.Record
		for _, ts := range times {
			records = append(records, batch.Record{Timestamp: ts})
		}
		require.Zero(t, w.produce(9, produceOf("t", 0, batch.Build(records, batch.BuildOptions{}))).ErrorCode)
	}
	cases := []struct {
		name                     string
		version                  int16
		timestamp, offset, stamp int64
	}{
		{"latest", 1, -1, 5, -1},
		{"earliest", 1, -2, 0, -1},
		{"largest timestamp", 7, -3, 2, 5000},
		{"earliest local", 8, -4, 0, -1},
		{"latest tiered", 9, -5, -1, -1},
		{"the first", 1, 0, 0, 1000},
		{"exactly", 4, 2000, 1, 2000},
		{"between records", 10, 2001, 2, 5000},
		{"beyond the end", 10, 5001, -1, -1},
	}
	for _, c := range cases {
		got := w.list(c.version, "t", c.timestamp, -1)
		require.Zero(t, got.ErrorCode, c.name)
		require.Equal(t, c.offset, got.Offset, c.name)
		require.Equal(t, c.stamp, got.Timestamp, c.name)
		require.Equal(t, c.version >= 4 && c.offset >= 0, got.LeaderEpoch >= 1, c.name)
	}
	for timestamp, want := range map[int64]int64{-1: 0, -2: 0, -3: -1, -4: 0, 17: -1} {
		got := w.list(8, "empty", timestamp, -1)
		require.Zero(t, got.ErrorCode)
		require.Equal(t, want, got.Offset, "timestamp %d of an empty topic", timestamp)
	}
	require.Equal(t, "UNSUPPORTED_VERSION", errorName(w.list(6, "t", -3, -1).ErrorCode))
	require.Equal(t, "UNSUPPORTED_VERSION", errorName(w.list(10, "t", -9, -1).ErrorCode))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", errorName(w.list(5, "missing", -1, -1).ErrorCode))
}

func TestLeaderEpochs(t *testing.T) { // case 19
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	require.Zero(t, w.produce(9, produceOf("t", 0, one("x"))).ErrorCode)
	epoch := w.topic(t, "t").Partitions[0].LeaderEpoch
	for believed, want := range map[int32]string{epoch: "", -1: "", epoch - 1: "FENCED_LEADER_EPOCH", epoch + 1: "UNKNOWN_LEADER_EPOCH"} {
		if believed == -1 && epoch == 0 {
			continue
		}
		require.Equal(t, want, errorName(w.list(5, "t", -1, believed).ErrorCode), "ListOffsets at %d of %d", believed, epoch)
		k := fetchOf("t", 0, 0)
		k.Topics[0].Partitions[0].CurrentLeaderEpoch = believed
		require.Equal(t, want, errorName(w.fetch(12, k).ErrorCode), "Fetch at %d of %d", believed, epoch)
	}
	ask1 := func(current, leader int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
		k := kmsg.NewPtrOffsetForLeaderEpochRequest()
		k.ReplicaID = -1
		topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
		topic.Topic = "t"
		topic.Partitions = []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: current, LeaderEpoch: leader}}
		k.Topics = append(k.Topics, topic)
		return ask[*kmsg.OffsetForLeaderEpochResponse](w, 3, k).Topics[0].Partitions[0]
	}
	require.Equal(t, int64(1), ask1(-1, epoch).EndOffset)
	require.Equal(t, epoch, ask1(epoch, epoch).LeaderEpoch)
	require.Equal(t, int64(-1), ask1(-1, epoch+1).EndOffset)
	require.Equal(t, "UNKNOWN_LEADER_EPOCH", errorName(ask1(epoch+1, epoch).ErrorCode))
}

func TestAnotherLeaderIsNamed(t *testing.T) { // case 19
	s := newSite(t)
	first, second := s.start(), s.start()
	first.create(t, "t", 2, nil)
	w := first.wire(t)
	var theirs int32 = -1
	require.Eventually(t, func() bool {
		for _, p := range w.topic(t, "t").Partitions {
			if p.Leader == 2 {
				theirs = p.Partition
			}
		}
		return theirs >= 0
	}, patience, 10*time.Millisecond)

	k := fetchOf("", theirs, 0)
	k.Topics[0].TopicID = w.topic(t, "t").TopicID
	fetched := ask[*kmsg.FetchResponse](w, 16, k)
	p := fetched.Topics[0].Partitions[0]
	require.Equal(t, "NOT_LEADER_FOR_PARTITION", errorName(p.ErrorCode))
	require.Equal(t, int32(2), p.CurrentLeader.LeaderID)
	require.GreaterOrEqual(t, p.CurrentLeader.LeaderEpoch, int32(1))
	require.Equal(t, second.addr, fetched.Brokers[0].Host+":"+itoa(fetched.Brokers[0].Port))

	produced := ask[*kmsg.ProduceResponse](w, 10, produceOf("t", theirs, one("x")))
	require.Equal(t, "NOT_LEADER_FOR_PARTITION", errorName(produced.Topics[0].Partitions[0].ErrorCode))
	require.Equal(t, int32(2), produced.Topics[0].Partitions[0].CurrentLeader.LeaderID)
	require.Equal(t, second.addr, produced.Brokers[0].Host+":"+itoa(produced.Brokers[0].Port))

	require.Zero(t, second.wire(t).produce(9, produceOf("t", theirs, one("x"))).ErrorCode)
}

func TestDeleteRecords(t *testing.T) { // case 23
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	for range 5 {
		require.Zero(t, w.produce(9, produceOf("t", 0, one("x"))).ErrorCode)
	}
	remove := func(offset int64) kmsg.DeleteRecordsResponseTopicPartition {
		k := kmsg.NewPtrDeleteRecordsRequest()
		topic := kmsg.NewDeleteRecordsRequestTopic()
		topic.Topic = "t"
		topic.Partitions = []kmsg.DeleteRecordsRequestTopicPartition{{Offset: offset}}
		k.Topics = append(k.Topics, topic)
		return ask[*kmsg.DeleteRecordsResponse](w, 2, k).Topics[0].Partitions[0]
	}
	require.Equal(t, int64(0), remove(0).LowWatermark)
	got := remove(3)
	require.Zero(t, got.ErrorCode)
	require.Equal(t, int64(3), got.LowWatermark)
	require.Equal(t, int64(3), remove(1).LowWatermark, "below the start: success without effect")
	require.Equal(t, "OFFSET_OUT_OF_RANGE", errorName(remove(6).ErrorCode))
	require.Equal(t, "OFFSET_OUT_OF_RANGE", errorName(remove(-2).ErrorCode))
	below := w.fetch(12, fetchOf("t", 0, 2))
	require.Equal(t, "OFFSET_OUT_OF_RANGE", errorName(below.ErrorCode))
	require.Equal(t, int64(3), below.LogStartOffset)
	require.Equal(t, int64(5), below.HighWatermark)
	require.Equal(t, int64(3), w.list(5, "t", -2, -1).Offset)
	require.Equal(t, int64(5), remove(-1).LowWatermark, "-1 is the high watermark")
	require.Equal(t, "OFFSET_OUT_OF_RANGE", errorName(w.fetch(12, fetchOf("t", 0, 6)).ErrorCode))
}

func TestFetchSessionsAreNotKept(t *testing.T) { // case 17
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	require.Zero(t, w.produce(9, produceOf("t", 0, one("x"))).ErrorCode)
	k := fetchOf("t", 0, 0)
	k.SessionEpoch = 0
	response := ask[*kmsg.FetchResponse](w, 12, k)
	require.Zero(t, response.SessionID)
	require.NotEmpty(t, response.Topics[0].Partitions[0].RecordBatches)
	k.SessionID = 17
	require.Equal(t, "FETCH_SESSION_ID_NOT_FOUND", errorName(ask[*kmsg.FetchResponse](w, 12, k).ErrorCode))
	k.SessionID, k.SessionEpoch = 0, 3
	require.Equal(t, "INVALID_FETCH_SESSION_EPOCH", errorName(ask[*kmsg.FetchResponse](w, 12, k).ErrorCode))
}
