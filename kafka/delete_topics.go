package kafka

import (
	"context"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteTopicsByID is the first version that names topics by name or id.
const deleteTopicsByID = 6

// deleteTopics deletes topics. Their names are free at once, their bytes go later.
func (s *Server) deleteTopics(ctx context.Context, r *request, k *kmsg.DeleteTopicsRequest) kmsg.Response {
	response := kmsg.NewPtrDeleteTopicsResponse()
	var refs []topicRef
	for _, name := range k.TopicNames {
		refs = append(refs, topicRef{name: name})
	}
	if r.version >= deleteTopicsByID {
		for i := range k.Topics {
			if want := &k.Topics[i]; want.Topic != nil {
				refs = append(refs, topicRef{name: *want.Topic})
			} else {
				refs = append(refs, topicRef{byID: true, id: uuid.UUID(want.TopicID)})
			}
		}
	}
	for _, ref := range refs {
		t := kmsg.NewDeleteTopicsResponseTopic()
		row, err := s.table(ctx, ref)
		if err == nil {
			err = s.broker.DeleteTable(ctx, row.Name)
		}
		t.ErrorCode, t.ErrorMessage = s.adminCode(r, err, ref.String())
		switch {
		case err == nil:
			t.Topic, t.TopicID = &row.Name, row.UUID
		case ref.byID:
			t.TopicID = ref.id
		default:
			t.Topic = &ref.name
		}
		response.Topics = append(response.Topics, t)
	}
	return response
}
