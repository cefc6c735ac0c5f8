package kafka

import (
	"net"
	"strconv"

	"github.com/varvedb/varve/layer"
)

// address is a node's advertised Kafka address; false when it has none that can be told to clients.
func address(n layer.NodeRow) (host string, port int32, ok bool) {
	host, text, err := net.SplitHostPort(n.Kafka)
	if err != nil {
		return "", 0, false
	}
	p, err := strconv.ParseUint(text, 10, 16)
	if err != nil || p == 0 {
		return "", 0, false
	}
	return host, int32(p), true
}

// rack is a node's rack, nil for none.
func rack(n layer.NodeRow) *string {
	if n.Rack == "" {
		return nil
	}
	return &n.Rack
}

// brokers lists the live nodes that clients can reach.
func (s *Server) brokers() []layer.NodeRow {
	var reachable []layer.NodeRow
	for _, n := range s.broker.LiveNodes() {
		if _, _, ok := address(n); ok {
			reachable = append(reachable, n)
		}
	}
	return reachable
}

// controllerID is the node that admin requests should go to: any can do it, so that -1 is told only while there is none.
func (s *Server) controllerID(brokers []layer.NodeRow) int32 {
	controller, ok := s.broker.Controller()
	for _, n := range brokers {
		if ok && n.ID == controller.ID {
			return int32(n.ID)
		}
	}
	if len(brokers) > 0 {
		return int32(brokers[0].ID)
	}
	return -1
}
