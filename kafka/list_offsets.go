package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes/engine"
)

// Timestamps of ListOffsets that ask for a place rather than a time.
const (
	offsetLatest         = -1
	offsetEarliest       = -2
	offsetMaxTimestamp   = -3 // KIP-734
	offsetEarliestLocal  = -4 // KIP-405: here all records are as near as any
	offsetLatestTiered   = -5 // KIP-1005: records lie in objects, but not by Kafka's tiered storage
	listMaxTimestampFrom = 7  // first version that knows -3
	listEarliestLocal    = 8
	listLatestTiered     = 9
)

// listOffsets looks up offsets by place or time. Read committed is the same as uncommitted, since there are no transactions.
func (s *Server) listOffsets(ctx context.Context, r *request, k *kmsg.ListOffsetsRequest) kmsg.Response {
	response := kmsg.NewPtrListOffsetsResponse()
	waiting, cancel := context.WithTimeout(ctx, s.options.StreamWait)
	defer cancel()
	for i := range k.Topics {
		topic := &k.Topics[i]
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = topic.Topic
		for j := range topic.Partitions {
			want := &topic.Partitions[j]
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.Offset, p.Timestamp, p.LeaderEpoch = want.Partition, -1, -1, -1
			stream, err := s.stream(waiting, topicRef{name: topic.Topic}, want.Partition)
			if err == nil {
				err = checkLeaderEpoch(want.CurrentLeaderEpoch, stream.Epoch())
			}
			if err == nil {
				err = lookUpOffset(ctx, r.version, stream, want.Timestamp, &p)
			}
			p.ErrorCode = s.partitionCode(r, err, topic.Topic, want.Partition)
			t.Partitions = append(t.Partitions, p)
		}
		response.Topics = append(response.Topics, t)
	}
	return response
}

// lookUpOffset fills in the offset, its timestamp where that was asked for, and the leader epoch. What does not exist is offset -1.
func lookUpOffset(ctx context.Context, version int16, stream *engine.Stream, timestamp int64, p *kmsg.ListOffsetsResponseTopicPartition) error {
	known := timestamp >= 0 || timestamp == offsetLatest || timestamp == offsetEarliest ||
		timestamp == offsetMaxTimestamp && version >= listMaxTimestampFrom ||
		timestamp == offsetEarliestLocal && version >= listEarliestLocal ||
		timestamp == offsetLatestTiered && version >= listLatestTiered
	if !known {
		return refuse(kerr.UnsupportedVersion, "timestamp %d in version %d", timestamp, version)
	}
	switch timestamp {
	case offsetLatest:
		p.Offset = stream.End()
	case offsetEarliest, offsetEarliestLocal:
		p.Offset = stream.Start()
	case offsetLatestTiered:
		return nil
	default:
		offset, ts, found, err := lookUpTime(ctx, stream, timestamp)
		if err != nil || !found {
			return err
		}
		p.Offset, p.Timestamp = offset, ts
	}
	p.LeaderEpoch = int32(stream.Epoch())
	return nil
}

func lookUpTime(ctx context.Context, stream *engine.Stream, timestamp int64) (offset, ts int64, found bool, err error) {
	if timestamp == offsetMaxTimestamp {
		return stream.MaxTimestamp(ctx)
	}
	return stream.OffsetFor(ctx, timestamp)
}
