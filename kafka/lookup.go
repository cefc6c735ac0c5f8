package kafka

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/engine"
)

// topicRef names a topic in a request: by id in versions that have topic ids, else by name.
type topicRef struct {
	name string
	id   uuid.UUID
	byID bool
}

func (t topicRef) String() string {
	if t.byID {
		return t.id.String()
	}
	return t.name
}

// table finds the topic's table. Errors: UNKNOWN_TOPIC_ID, nodes.ErrUnknownTable, nodes.ErrInvalidName, nodes.ErrUnavailable. A stream that was made
// over HTTP has a path for its name: a client that names it gets it, though no topic of such a name is made or listed.
func (s *Server) table(ctx context.Context, t topicRef) (layer.TableRow, error) {
	if t.byID {
		row, ok := s.broker.TableByUUID(t.id)
		if !ok || row.State == layer.TableDeleting {
			return layer.TableRow{}, refuse(kerr.UnknownTopicID, "no topic has the id %v", t.id)
		}
		return row, nil
	}
	if err := nodes.ValidateName(t.name); err != nil {
		return layer.TableRow{}, err
	}
	return s.broker.Table(ctx, t.name)
}

// isTopic tells whether the table is listed when a client asks for all topics: tools take it for granted that they may use such names in
// those of files and metrics.
func isTopic(row layer.TableRow) bool {
	return row.State != layer.TableDeleting && nodes.IsTopicName(row.Name)
}

// stream finds the stream of a partition that this node leads. Errors: those of table and Broker.Stream.
func (s *Server) stream(ctx context.Context, t topicRef, partition int32) (*engine.Stream, error) {
	if t.byID {
		if _, err := s.table(ctx, t); err != nil {
			return nil, err
		}
		return s.broker.StreamByUUID(ctx, t.id, int(partition))
	}
	if nodes.ValidateName(t.name) != nil {
		return nil, refuse(kerr.UnknownTopicOrPartition, "no topic can have this name")
	}
	return s.broker.Stream(ctx, t.name, int(partition))
}

// checkLeaderEpoch compares the leader epoch that a client believes in, -1 none, with the stream's (KIP-320).
func checkLeaderEpoch(believed int32, epoch int64) error {
	switch {
	case believed < 0 || int64(believed) == epoch:
		return nil
	case int64(believed) < epoch:
		return refuse(kerr.FencedLeaderEpoch, "leader epoch %d is over, it is %d now", believed, epoch)
	}
	return refuse(kerr.UnknownLeaderEpoch, "leader epoch %d has not begun here, it is %d", believed, epoch)
}

// leaderHint is what an error says of who leads, for the tagged fields that spare a client a Metadata request (KIP-951).
type leaderHint struct {
	id, epoch int32
	node      layer.NodeRow
}

// hintOf is the hint in err; false when there is none.
func hintOf(err error) (leaderHint, bool) {
	var e *nodes.NotLeader
	if !errors.As(err, &e) || e.Leader.ID == 0 || e.Leader.Kafka == "" {
		return leaderHint{}, false
	}
	return leaderHint{id: int32(e.Leader.ID), epoch: int32(e.LeaderEpoch), node: e.Leader}, true
}
