package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes"
)

// incrementalAlterConfigs changes single settings of topics (KIP-339).
func (s *Server) incrementalAlterConfigs(ctx context.Context, r *request, k *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	response := kmsg.NewPtrIncrementalAlterConfigsResponse()
	for i := range k.Resources {
		want := &k.Resources[i]
		res := kmsg.NewIncrementalAlterConfigsResponseResource()
		res.ResourceType, res.ResourceName = want.ResourceType, want.ResourceName
		res.ErrorCode, res.ErrorMessage = s.adminCode(r, s.changeConfigs(ctx, want, k.ValidateOnly), want.ResourceName)
		response.Resources = append(response.Resources, res)
	}
	return response
}

func (s *Server) changeConfigs(ctx context.Context, want *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	change, err := s.topicChange(ctx, want.ResourceType, want.ResourceName)
	if err != nil {
		return err
	}
	seen := make(map[string]bool, len(want.Configs))
	for i := range want.Configs {
		c := &want.Configs[i]
		if seen[c.Name] {
			return refuse(kerr.InvalidRequest, "config %.100q is named more than once", c.Name)
		}
		seen[c.Name] = true
		if err := change.apply(c); err != nil {
			return err
		}
	}
	return s.changeTopic(ctx, change, validateOnly)
}

// apply adds one operation to the change.
func (t *topicChange) apply(c *kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	option, ok := nodes.TableOptionByName(c.Name)
	switch {
	case !ok:
		return refuse(kerr.InvalidConfig, "there is no config %.100q", c.Name)
	case c.Op == kmsg.IncrementalAlterConfigOpDelete:
		t.remove = append(t.remove, c.Name)
		return nil
	case c.Value == nil:
		return refuse(kerr.InvalidConfig, "config %q is null", c.Name)
	case c.Op == kmsg.IncrementalAlterConfigOpSet:
		t.set[c.Name] = *c.Value
		return nil
	case c.Op != kmsg.IncrementalAlterConfigOpAppend && c.Op != kmsg.IncrementalAlterConfigOpSubtract:
		return refuse(kerr.InvalidRequest, "operation %d of config %q", c.Op, c.Name)
	case option.Type != nodes.TypeList:
		return refuse(kerr.InvalidConfig, "config %q is not a list", c.Name)
	}
	t.set[c.Name] = changeList(nodes.OptionValue(t.current, c.Name), *c.Value, c.Op == kmsg.IncrementalAlterConfigOpAppend)
	return nil
}

// changeList appends the items of a comma-separated list to another, or takes them out of it.
func changeList(current, items string, appended bool) string {
	list := splitList(current)
	for _, item := range splitList(items) {
		if !appended {
			list = slices.DeleteFunc(list, func(v string) bool { return v == item })
		} else if !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	return strings.Join(list, ",")
}

func splitList(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return c == ',' || c == ' ' })
}
