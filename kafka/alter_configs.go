package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes"
)

// alterConfigs makes the settings of topics exactly those of the request.
func (s *Server) alterConfigs(ctx context.Context, r *request, k *kmsg.AlterConfigsRequest) kmsg.Response {
	response := kmsg.NewPtrAlterConfigsResponse()
	for i := range k.Resources {
		want := &k.Resources[i]
		res := kmsg.NewAlterConfigsResponseResource()
		res.ResourceType, res.ResourceName = want.ResourceType, want.ResourceName
		res.ErrorCode, res.ErrorMessage = s.adminCode(r, s.replaceConfigs(ctx, want, k.ValidateOnly), want.ResourceName)
		response.Resources = append(response.Resources, res)
	}
	return response
}

func (s *Server) replaceConfigs(ctx context.Context, want *kmsg.AlterConfigsRequestResource, validateOnly bool) error {
	change, err := s.topicChange(ctx, want.ResourceType, want.ResourceName)
	if err != nil {
		return err
	}
	for _, c := range want.Configs {
		if c.Value == nil {
			return refuse(kerr.InvalidConfig, "config %.100q is null", c.Name)
		}
		change.set[c.Name] = *c.Value
	}
	for name := range change.current {
		if _, kept := change.set[name]; !kept {
			change.remove = append(change.remove, name)
		}
	}
	return s.changeTopic(ctx, change, validateOnly)
}

// topicChange is a change of a topic's settings.
type topicChange struct {
	topic   string
	current map[string]string
	set     map[string]string
	remove  []string
}

// topicChange begins a change. Only topics have settings that can be changed.
func (s *Server) topicChange(ctx context.Context, kind kmsg.ConfigResourceType, name string) (topicChange, error) {
	if kind != kmsg.ConfigResourceTypeTopic {
		return topicChange{}, refuse(kerr.InvalidRequest, "configs of resource type %d cannot be changed here, those of a node are set when it starts", kind)
	}
	row, err := s.table(ctx, topicRef{name: name})
	if err != nil {
		return topicChange{}, err
	}
	return topicChange{topic: row.Name, current: row.Options, set: make(map[string]string)}, nil
}

func (s *Server) changeTopic(ctx context.Context, c topicChange, validateOnly bool) error {
	if validateOnly {
		return nodes.ValidateTableOptions(c.set)
	}
	_, err := s.broker.AlterTable(ctx, c.topic, c.set, c.remove)
	return err
}
