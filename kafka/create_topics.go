package kafka

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
)

// replicas is the replication factor that is told to clients: copies are a matter of the object store.
const replicas = 1

// createTopics makes topics. Any positive replication factor is accepted and means the same.
func (s *Server) createTopics(ctx context.Context, r *request, k *kmsg.CreateTopicsRequest) kmsg.Response {
	response := kmsg.NewPtrCreateTopicsResponse()
	named := make(map[string]int, len(k.Topics))
	for i := range k.Topics {
		named[k.Topics[i].Topic]++
	}
	for i := range k.Topics {
		want := &k.Topics[i]
		if named[want.Topic] == 0 {
			continue // a duplicate that is answered already
		}
		t := kmsg.NewCreateTopicsResponseTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = want.Topic, -1, -1
		var row layer.TableRow
		create, err := s.newTopic(want, k.ValidateOnly)
		if named[want.Topic] > 1 {
			err = refuse(kerr.InvalidRequest, "topic %q is named more than once", want.Topic)
			named[want.Topic] = 0
		}
		if err == nil {
			row, err = s.createTopic(ctx, create)
		}
		t.ErrorCode, t.ErrorMessage = s.adminCode(r, err, want.Topic)
		if err == nil {
			t.TopicID, t.NumPartitions, t.ReplicationFactor = row.UUID, int32(row.Target), replicas
			t.Configs = createdConfigs(row)
		}
		response.Topics = append(response.Topics, t)
	}
	return response
}

// newTopic is the table to be made for a topic. Its options and number of buckets are checked by the Broker.
func (s *Server) newTopic(want *kmsg.CreateTopicsRequestTopic, validateOnly bool) (nodes.CreateTable, error) {
	create := nodes.CreateTable{Name: want.Topic, Kind: layer.LogTable, Buckets: int(want.NumPartitions), ValidateOnly: validateOnly}
	switch {
	case len(want.ReplicaAssignment) > 0:
		return create, refuse(kerr.InvalidReplicaAssignment, "replicas cannot be assigned by hand: partitions have no replicas here")
	case want.NumPartitions == -1:
		create.Buckets = s.options.DefaultPartitions
	case want.NumPartitions <= 0:
		return create, refuse(kerr.InvalidPartitions, "%d partitions, want 1 or more, or -1 for the default", want.NumPartitions)
	}
	if want.ReplicationFactor == 0 || want.ReplicationFactor < -1 {
		return create, refuse(kerr.InvalidReplicationFactor, "replication factor %d, want 1 or more, or -1 for the default", want.ReplicationFactor)
	}
	if len(want.Configs) > 0 {
		create.Options = make(map[string]string, len(want.Configs))
	}
	for _, c := range want.Configs {
		if c.Value == nil {
			return create, refuse(kerr.InvalidConfig, "config %.100q is null", c.Name)
		}
		create.Options[c.Name] = *c.Value
	}
	return create, nil
}

// createTopic makes a table under a name that a topic can have.
func (s *Server) createTopic(ctx context.Context, create nodes.CreateTable) (layer.TableRow, error) {
	if err := nodes.ValidateTopicName(create.Name); err != nil {
		return layer.TableRow{}, err
	}
	if other, ok := s.collision(create.Name); ok {
		return layer.TableRow{}, refuse(kerr.InvalidTopicException, "topic %q collides with %q: '.' and '_' are the same in names of metrics", create.Name, other)
	}
	return s.broker.CreateTable(ctx, create)
}

// collision finds another topic that differs only in '.' and '_', which Kafka refuses.
func (s *Server) collision(name string) (other string, ok bool) {
	if !strings.ContainsAny(name, "._") {
		return "", false
	}
	same := strings.NewReplacer(".", "_")
	folded := same.Replace(name)
	for _, row := range s.broker.Tables() {
		if row.Name != name && len(row.Name) == len(name) && isTopic(row) && same.Replace(row.Name) == folded {
			return row.Name, true
		}
	}
	return "", false
}

func createdConfigs(row layer.TableRow) []kmsg.CreateTopicsResponseTopicConfig {
	var configs []kmsg.CreateTopicsResponseTopicConfig
	for _, o := range topicConfigs(row) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.Source, c.ReadOnly = o.name, &o.value, int8(o.source), o.readOnly
		configs = append(configs, c)
	}
	return configs
}
