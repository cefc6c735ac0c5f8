package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetCommit refuses to keep offsets of a group.
func (s *Server) offsetCommit(_ context.Context, r *request, k *kmsg.OffsetCommitRequest) kmsg.Response {
	response := kmsg.NewPtrOffsetCommitResponse()
	code, _ := s.adminCode(r, errGroups, k.Group)
	for _, topic := range k.Topics {
		t := kmsg.NewOffsetCommitResponseTopic()
		t.Topic = topic.Topic
		for _, partition := range topic.Partitions {
			p := kmsg.NewOffsetCommitResponseTopicPartition()
			p.Partition, p.ErrorCode = partition.Partition, code
			t.Partitions = append(t.Partitions, p)
		}
		response.Topics = append(response.Topics, t)
	}
	return response
}
