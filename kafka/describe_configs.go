package kafka

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeConfigs shows the settings of topics and of this node.
func (s *Server) describeConfigs(ctx context.Context, r *request, k *kmsg.DescribeConfigsRequest) kmsg.Response {
	response := kmsg.NewPtrDescribeConfigsResponse()
	for i := range k.Resources {
		want := &k.Resources[i]
		res := kmsg.NewDescribeConfigsResponseResource()
		res.ResourceType, res.ResourceName = want.ResourceType, want.ResourceName
		configs, err := s.configsOf(ctx, want.ResourceType, want.ResourceName)
		res.ErrorCode, res.ErrorMessage = s.adminCode(r, err, want.ResourceName)
		for _, c := range configs {
			if want.ConfigNames == nil || slices.Contains(want.ConfigNames, c.name) {
				res.Configs = append(res.Configs, c.describe(k))
			}
		}
		response.Resources = append(response.Resources, res)
	}
	return response
}

// configsOf lists the settings of a resource. Groups and other kinds have none.
func (s *Server) configsOf(ctx context.Context, kind kmsg.ConfigResourceType, name string) ([]config, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		row, err := s.table(ctx, topicRef{name: name})
		if err != nil {
			return nil, err
		}
		return topicConfigs(row), nil
	case kmsg.ConfigResourceTypeBroker:
		if self := s.broker.Self().ID; name != "" && name != strconv.FormatInt(self, 10) {
			return nil, refuse(kerr.InvalidRequest, "this is node %d, ask node %.20q for its configs", self, name)
		}
		return s.brokerConfigs(), nil
	}
	return nil, refuse(kerr.InvalidRequest, "resource type %d has no configs here", kind)
}

// describe encodes a setting with what the request asks for.
func (c config) describe(k *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	d := kmsg.NewDescribeConfigsResponseResourceConfig()
	d.Name, d.Value, d.ReadOnly, d.ConfigType, d.Source = c.name, &c.value, c.readOnly, c.kind, c.source
	d.IsDefault = c.source == kmsg.ConfigSourceDefaultConfig
	if k.IncludeDocumentation {
		d.Documentation = &c.doc
	}
	if k.IncludeSynonyms {
		if !d.IsDefault {
			d.ConfigSynonyms = append(d.ConfigSynonyms, synonym(c.name, c.value, c.source))
		}
		d.ConfigSynonyms = append(d.ConfigSynonyms, synonym(c.name, c.fallback, kmsg.ConfigSourceDefaultConfig))
	}
	return d
}

func synonym(name, value string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	y := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	y.Name, y.Value, y.Source = name, &value, source
	return y
}
