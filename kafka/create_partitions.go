package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createPartitions raises the number of partitions of topics.
func (s *Server) createPartitions(ctx context.Context, r *request, k *kmsg.CreatePartitionsRequest) kmsg.Response {
	response := kmsg.NewPtrCreatePartitionsResponse()
	for i := range k.Topics {
		want := &k.Topics[i]
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic = want.Topic
		var err error
		if len(want.Assignment) > 0 {
			err = refuse(kerr.InvalidReplicaAssignment, "replicas cannot be assigned by hand: partitions have no replicas here")
		} else if _, err = s.table(ctx, topicRef{name: want.Topic}); err == nil {
			_, err = s.broker.AddBuckets(ctx, want.Topic, int(want.Count), k.ValidateOnly)
		}
		t.ErrorCode, t.ErrorMessage = s.adminCode(r, err, want.Topic)
		response.Topics = append(response.Topics, t)
	}
	return response
}
