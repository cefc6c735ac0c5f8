package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API keys that are served.
const (
	keyProduce                 = 0
	keyFetch                   = 1
	keyListOffsets             = 2
	keyMetadata                = 3
	keyOffsetCommit            = 8
	keyOffsetFetch             = 9
	keyFindCoordinator         = 10
	keyJoinGroup               = 11
	keyAPIVersions             = 18
	keyCreateTopics            = 19
	keyDeleteTopics            = 20
	keyDeleteRecords           = 21
	keyInitProducerID          = 22
	keyOffsetForLeaderEpoch    = 23
	keyDescribeConfigs         = 32
	keyAlterConfigs            = 33
	keyCreatePartitions        = 37
	keyIncrementalAlterConfigs = 44
	keyDescribeCluster         = 60
)

// api is one kind of request and the versions of it that are served.
type api struct {
	key      int16
	name     string
	min, max int16
	handle   handler
}

var (
	// errUnsupported says that a request is of a kind or version that is not served. The connection is closed, as Kafka does: there is no
	// way to answer in a form that the client is known to understand.
	errUnsupported = errors.New("unsupported request")
	// errOtherVersion is the one exception: an ApiVersions request of an unknown version is answered in version 0 (KIP-511).
	errOtherVersion = errors.New("unknown version of ApiVersions")
)

// servedAPIs is the table of what is served. Minima are those of Apache Kafka 4.1 unless a comment says otherwise. Versions with topic ids
// (Produce 13, Fetch 13, Metadata 10) go together.
func (s *Server) servedAPIs() map[int16]api {
	list := []api{
		{keyProduce, "Produce", 0, 13, s.produce}, // listed from 0 for the probes of librdkafka before 2.8
		{keyFetch, "Fetch", 4, 17, s.fetch},
		{keyListOffsets, "ListOffsets", 1, 10, simple(s, s.listOffsets)},
		{keyMetadata, "Metadata", 0, 13, simple(s, s.metadata)},
		{keyOffsetCommit, "OffsetCommit", 2, 9, simple(s, s.offsetCommit)},
		{keyOffsetFetch, "OffsetFetch", 1, 9, simple(s, s.offsetFetch)},
		{keyFindCoordinator, "FindCoordinator", 0, 6, simple(s, s.findCoordinator)},
		{keyJoinGroup, "JoinGroup", 0, 9, simple(s, s.joinGroup)},
		{keyAPIVersions, "ApiVersions", 0, 4, simple(s, s.apiVersions)},
		{keyCreateTopics, "CreateTopics", 0, 7, simple(s, s.createTopics)}, // from 0 for old kafka-go
		{keyDeleteTopics, "DeleteTopics", 0, 6, simple(s, s.deleteTopics)}, // from 0 for old kafka-go
		{keyDeleteRecords, "DeleteRecords", 0, 2, simple(s, s.deleteRecords)},
		{keyInitProducerID, "InitProducerId", 0, 5, simple(s, s.initProducerID)},
		{keyOffsetForLeaderEpoch, "OffsetForLeaderEpoch", 2, 4, simple(s, s.offsetForLeaderEpoch)},
		{keyDescribeConfigs, "DescribeConfigs", 1, 4, simple(s, s.describeConfigs)},
		{keyAlterConfigs, "AlterConfigs", 0, 2, simple(s, s.alterConfigs)},
		{keyCreatePartitions, "CreatePartitions", 0, 3, simple(s, s.createPartitions)},
		{keyIncrementalAlterConfigs, "IncrementalAlterConfigs", 0, 1, simple(s, s.incrementalAlterConfigs)},
		{keyDescribeCluster, "DescribeCluster", 0, 2, simple(s, s.describeCluster)},
	}
	apis := make(map[int16]api, len(list))
	for _, a := range list {
		apis[a.key] = a
	}
	return apis
}

// pointerTo is a pointer to a kmsg request, which is itself a kmsg.Request.
type pointerTo[T any] interface {
	*T
	kmsg.Request
}

// simple makes a handler of a function from request to response. It runs on a goroutine of the connection.
func simple[T any, P pointerTo[T]](s *Server, f func(ctx context.Context, r *request, k P) kmsg.Response) handler {
	return func(ctx context.Context, conn *connection, c *call) error {
		k := P(new(T))
		if err := c.request.decode(k); err != nil {
			return err
		}
		conn.work(c.request.api.name, func() {
			c.reply(c.request.respond(f(ctx, c.request, k)))
		})
		return nil
	}
}
