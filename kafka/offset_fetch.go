package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetFetchBatch is the first version that asks for several groups.
const offsetFetchBatch = 8

// noOffset says that none is committed.
const noOffset = -1

// offsetFetch says that no group has committed an offset, which is so: consumers begin where their configuration says. Without topics it asks for all that are committed.
func (s *Server) offsetFetch(_ context.Context, r *request, k *kmsg.OffsetFetchRequest) kmsg.Response {
	response := kmsg.NewPtrOffsetFetchResponse()
	if r.version < offsetFetchBatch {
		for _, topic := range k.Topics {
			t := kmsg.NewOffsetFetchResponseTopic()
			t.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				p := kmsg.NewOffsetFetchResponseTopicPartition()
				p.Partition, p.Offset, p.LeaderEpoch = partition, noOffset, noOffset
				t.Partitions = append(t.Partitions, p)
			}
			response.Topics = append(response.Topics, t)
		}
		return response
	}
	for _, group := range k.Groups {
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group = group.Group
		for _, topic := range group.Topics {
			t := kmsg.NewOffsetFetchResponseGroupTopic()
			t.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				p.Partition, p.Offset, p.LeaderEpoch = partition, noOffset, noOffset
				t.Partitions = append(t.Partitions, p)
			}
			g.Topics = append(g.Topics, t)
		}
		response.Groups = append(response.Groups, g)
	}
	return response
}
