package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Coordinator types of FindCoordinator.
const coordinatorGroup = 0

// findCoordinatorBatch is the first version that asks for several keys.
const findCoordinatorBatch = 4

// findCoordinator is listed because librdkafka takes its presence as the sign that LZ4 is known. There are no groups: that a group's coordinator is not available is what
// clients cope with best. Transactions are refused for good.
func (s *Server) findCoordinator(_ context.Context, r *request, k *kmsg.FindCoordinatorRequest) kmsg.Response {
	response := kmsg.NewPtrFindCoordinatorResponse()
	err := refuse(kerr.CoordinatorNotAvailable, "consumer groups are not served")
	if k.CoordinatorType != coordinatorGroup {
		err = errTransactions
	}
	if r.version < findCoordinatorBatch {
		response.NodeID, response.Port = -1, -1
		response.ErrorCode, response.ErrorMessage = s.adminCode(r, err, k.CoordinatorKey)
		return response
	}
	for _, key := range k.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port = key, -1, -1
		c.ErrorCode, c.ErrorMessage = s.adminCode(r, err, key)
		response.Coordinators = append(response.Coordinators, c)
	}
	return response
}
