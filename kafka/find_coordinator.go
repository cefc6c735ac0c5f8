package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// findCoordinatorBatch is the first version that asks for several keys.
const findCoordinatorBatch = 4

// What is not served yet is refused with UNSUPPORTED_VERSION, at which all clients give up and say why; most others they try again for ever.
var (
	errGroups       = refuse(kerr.UnsupportedVersion, "consumer groups are not served: assign partitions by hand")
	errTransactions = refuse(kerr.UnsupportedVersion, "transactions are not served")
)

// findCoordinator names this node as the coordinator of everything. What such a coordinator is asked then is refused: JoinGroup, OffsetCommit, and InitProducerId with a
// transactional id. A refusal here would come too early: a consumer that only assigns partitions, and has a group id because its client wants one, asks for no
// more than the coordinator, and is not to be told of an error; and librdkafka asks for that of a transaction again and again, whatever the code.
func (s *Server) findCoordinator(_ context.Context, r *request, k *kmsg.FindCoordinatorRequest) kmsg.Response {
	response := kmsg.NewPtrFindCoordinatorResponse()
	if r.version < findCoordinatorBatch {
		c := s.coordinator(r, k.CoordinatorKey)
		response.NodeID, response.Host, response.Port, response.ErrorCode, response.ErrorMessage = c.NodeID, c.Host, c.Port, c.ErrorCode, c.ErrorMessage
		return response
	}
	for _, key := range k.CoordinatorKeys {
		response.Coordinators = append(response.Coordinators, s.coordinator(r, key))
	}
	return response
}

func (s *Server) coordinator(r *request, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	self := s.broker.Self()
	host, port, ok := address(self)
	if !ok {
		c.ErrorCode, c.ErrorMessage = s.adminCode(r, refuse(kerr.CoordinatorNotAvailable, "node %d has no Kafka address", self.ID), key)
		return c
	}
	c.NodeID, c.Host, c.Port = int32(self.ID), host, port
	return c
}
