package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetForLeaderEpoch tells clients whether what they have read was taken back since (KIP-320). Here nothing that was read ever is: the records of
// a leader epoch up to the high watermark stay what they are, so that the high watermark is the answer for every epoch that has been.
func (s *Server) offsetForLeaderEpoch(ctx context.Context, r *request, k *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	response := kmsg.NewPtrOffsetForLeaderEpochResponse()
	waiting, cancel := context.WithTimeout(ctx, s.options.StreamWait)
	defer cancel()
	for i := range k.Topics {
		topic := &k.Topics[i]
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = topic.Topic
		for j := range topic.Partitions {
			want := &topic.Partitions[j]
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = want.Partition, -1, -1
			stream, err := s.stream(waiting, topicRef{name: topic.Topic}, want.Partition)
			if err == nil {
				err = checkLeaderEpoch(want.CurrentLeaderEpoch, stream.Epoch())
			}
			if err == nil && want.LeaderEpoch >= 0 && int64(want.LeaderEpoch) <= stream.Epoch() {
				p.LeaderEpoch, p.EndOffset = want.LeaderEpoch, stream.End()
			}
			p.ErrorCode = s.partitionCode(r, err, topic.Topic, want.Partition)
			t.Partitions = append(t.Partitions, p)
		}
		response.Topics = append(response.Topics, t)
	}
	return response
}
