package kafka

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
)

// metadataNullIsAll is the first version in which null, rather than an empty list, asks for all topics.
const metadataNullIsAll = 1

// metadata tells the nodes and who leads which partition. Each partition has one replica, its leader: copies are a matter of the object
// store.
func (s *Server) metadata(ctx context.Context, r *request, k *kmsg.MetadataRequest) kmsg.Response {
	response := kmsg.NewPtrMetadataResponse()
	brokers := s.brokers()
	for _, n := range brokers {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Rack = int32(n.ID), rack(n)
		b.Host, b.Port, _ = address(n)
		response.Brokers = append(response.Brokers, b)
	}
	cluster := s.broker.Cluster()
	response.ClusterID = &cluster
	response.ControllerID = s.controllerID(brokers)
	response.AuthorizedOperations = operations(k.IncludeClusterAuthorizedOperations, clusterOperations)

	all := k.Topics == nil || r.version < metadataNullIsAll && len(k.Topics) == 0
	if all {
		for _, row := range s.broker.Tables() {
			if isTopic(row) {
				response.Topics = append(response.Topics, s.topicMetadata(ctx, r, k, topicRef{name: row.Name}, brokers))
			}
		}
		return response
	}
	for i := range k.Topics {
		response.Topics = append(response.Topics, s.topicMetadata(ctx, r, k, metadataRef(&k.Topics[i]), brokers))
	}
	return response
}

func metadataRef(t *kmsg.MetadataRequestTopic) topicRef {
	if t.Topic == nil || t.TopicID != [16]byte{} {
		return topicRef{byID: true, id: uuid.UUID(t.TopicID)}
	}
	return topicRef{name: *t.Topic}
}

// topicMetadata describes one topic, which is made if it is missing and the client and the options allow that.
func (s *Server) topicMetadata(ctx context.Context, r *request, k *kmsg.MetadataRequest, ref topicRef, brokers []layer.NodeRow) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	if ref.byID {
		t.TopicID = ref.id
	} else {
		t.Topic = &ref.name
	}
	row, err := s.table(ctx, ref)
	if errors.Is(err, nodes.ErrUnknownTable) && s.options.AutoCreateTopics && (k.AllowAutoTopicCreation || r.version < 4) {
		row, err = s.autoCreate(ctx, ref.name)
	}
	var partitions []layer.StreamRow
	if err == nil {
		partitions, err = s.broker.Partitions(ctx, row.Name)
	}
	if err != nil {
		t.ErrorCode = s.failed(r, metadataError(err), err, "topic", ref.String())
		return t
	}
	t.Topic, t.TopicID = &row.Name, row.UUID
	t.AuthorizedOperations = operations(k.IncludeTopicAuthorizedOperations, topicOperations)
	for _, stream := range partitions {
		t.Partitions = append(t.Partitions, partitionMetadata(stream, brokers))
	}
	return t
}

// metadataError is the error for a topic: where others say NOT_LEADER, clients expect LEADER_NOT_AVAILABLE of Metadata.
func metadataError(err error) *kerr.Error {
	if code := partitionError(err); code != kerr.NotLeaderForPartition {
		return code
	}
	return kerr.LeaderNotAvailable
}

// autoCreate makes a topic with the defaults.
func (s *Server) autoCreate(ctx context.Context, name string) (layer.TableRow, error) {
	row, err := s.createTopic(ctx, nodes.CreateTable{Name: name, Buckets: s.options.DefaultPartitions})
	if errors.Is(err, nodes.ErrTableExists) { // another client was faster
		return s.broker.Table(ctx, name)
	}
	if err == nil {
		s.logger.Info("topic created because a client asked for it", "topic", name, "partitions", s.options.DefaultPartitions)
	}
	return row, err
}

func partitionMetadata(stream layer.StreamRow, brokers []layer.NodeRow) kmsg.MetadataResponseTopicPartition {
	p := kmsg.NewMetadataResponseTopicPartition()
	p.Partition = int32(stream.Bucket)
	p.LeaderEpoch = int32(stream.LeaderEpoch)
	p.Leader = -1
	if stream.Leader != 0 {
		p.Replicas = []int32{int32(stream.Leader)}
	}
	for _, n := range brokers {
		if n.ID == stream.Leader {
			p.Leader = int32(n.ID)
			p.ISR = p.Replicas
			return p
		}
	}
	p.ErrorCode = kerr.LeaderNotAvailable.Code
	p.OfflineReplicas = p.Replicas
	return p
}

// Bits of KIP-430: what an authorized client may do. Without authorization everybody may do everything.
const (
	notAsked          = -2147483648
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11 // read, write, create, delete, alter, describe, describe and alter configs
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12       // create, alter, describe, cluster action, configs, idempotent write
)

func operations(asked bool, bits int32) int32 {
	if asked {
		return bits
	}
	return notAsked
}
