package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// endpointBrokers is the only endpoint type there is: no node is a controller only (KIP-919).
const endpointBrokers = 1

// describeCluster tells the live nodes (KIP-700). Fenced nodes are not told of: they never come back at the same epoch.
func (s *Server) describeCluster(_ context.Context, r *request, k *kmsg.DescribeClusterRequest) kmsg.Response {
	response := kmsg.NewPtrDescribeClusterResponse()
	response.EndpointType = k.EndpointType
	response.ControllerID = -1
	response.ClusterAuthorizedOperations = operations(k.IncludeClusterAuthorizedOperations, clusterOperations)
	response.ClusterID = s.broker.Cluster()
	if r.version >= 1 && k.EndpointType != endpointBrokers {
		response.ErrorCode, response.ErrorMessage = s.adminCode(r, refuse(kerr.UnsupportedEndpointType, "endpoint type %d, want %d (brokers)", k.EndpointType, endpointBrokers), "cluster")
		return response
	}
	brokers := s.brokers()
	response.ControllerID = s.controllerID(brokers)
	for _, n := range brokers {
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Rack = int32(n.ID), rack(n)
		b.Host, b.Port, _ = address(n)
		response.Brokers = append(response.Brokers, b)
	}
	return response
}
