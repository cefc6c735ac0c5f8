package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
	"github.com/varvedb/varve/wal/segment"
)

// refusal is a failure that this package itself finds, with the code to answer and what to say.
type refusal struct {
	code *kerr.Error
	why  string
}

func (r *refusal) Error() string { return r.why }

func refuse(code *kerr.Error, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// errorCodes is the one table from failures to Kafka's errors; the first line that matches counts. "partition" is for requests about one
// partition, "admin" for those that change metadata. Where a failure passes, the code is one that all clients retry: NOT_LEADER_OR_FOLLOWER for partitions,
// since it makes them ask for the leader again and is the only such code that every client accepts in a Fetch, and NOT_CONTROLLER for metadata.
func errorCodes() []errorCode {
	return []errorCode{
		{nodes.ErrUnknownTable, kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
		{nodes.ErrUnknownBucket, kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
		{layer.ErrTableNotFound, kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
		{layer.ErrStreamNotFound, kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
		{nodes.ErrTableExists, kerr.TopicAlreadyExists, kerr.TopicAlreadyExists},
		{nodes.ErrInvalidName, kerr.InvalidTopicException, kerr.InvalidTopicException},
		{nodes.ErrInvalidOption, kerr.InvalidConfig, kerr.InvalidConfig},
		{nodes.ErrInvalidBuckets, kerr.InvalidPartitions, kerr.InvalidPartitions},
		{nodes.ErrInvalidRequest, kerr.InvalidRequest, kerr.InvalidRequest},

		{engine.ErrNotOpen, kerr.NotLeaderForPartition, kerr.NotController},
		{engine.ErrFenced, kerr.NotLeaderForPartition, kerr.NotController},
		{nodes.ErrFenced, kerr.NotLeaderForPartition, kerr.NotController},
		{layer.ErrFenced, kerr.NotLeaderForPartition, kerr.NotController},
		{layer.ErrReplaced, kerr.NotLeaderForPartition, kerr.NotController},
		{engine.ErrBacklogFull, kerr.RequestTimedOut, kerr.RequestTimedOut},
		{engine.ErrTimeout, kerr.RequestTimedOut, kerr.RequestTimedOut},
		{engine.ErrUnavailable, kerr.KafkaStorageError, kerr.NotController},

		{engine.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber, nil},
		{engine.ErrDuplicateTooOld, kerr.DuplicateSequenceNumber, nil},
		{engine.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch, nil},
		{engine.ErrEnded, kerr.PolicyViolation, nil},
		{engine.ErrInvalid, kerr.InvalidRecord, kerr.InvalidRequest},

		{batch.ErrMagic, kerr.UnsupportedForMessageFormat, nil},
		{batch.ErrTimestamp, kerr.InvalidTimestamp, nil},
		{batch.ErrTooLarge, kerr.MessageTooLarge, nil},
		{batch.ErrInvalid, kerr.InvalidRecord, nil},
		{batch.ErrCorrupt, kerr.CorruptMessage, nil},
		{segment.ErrCorrupt, kerr.CorruptMessage, nil},

		// Last: errors above may have been caused by the end of a context or an outage, and wrap it.
		{nodes.ErrUnavailable, kerr.NotLeaderForPartition, kerr.NotController},
		{context.DeadlineExceeded, kerr.RequestTimedOut, kerr.RequestTimedOut},
		{context.Canceled, kerr.NotLeaderForPartition, kerr.NotController},
	}
}

type errorCode struct {
	is               error
	partition, admin *kerr.Error
}

// partitionError is the Kafka error for a failure of a request about one partition; nil for nil.
func partitionError(err error) *kerr.Error {
	var (
		r          *refusal
		notLeader  *nodes.NotLeader
		outOfRange *engine.OffsetOutOfRange
		missing    *engine.MissingObjectError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return r.code
	case errors.As(err, &notLeader):
		return kerr.NotLeaderForPartition
	case errors.As(err, &outOfRange):
		return kerr.OffsetOutOfRange
	case errors.As(err, &missing):
		return kerr.KafkaStorageError
	}
	for _, c := range errorCodes() {
		if c.partition != nil && errors.Is(err, c.is) {
			return c.partition
		}
	}
	return kerr.UnknownServerError
}

// adminError is the Kafka error for a failure of a request that changes or shows metadata; nil for nil.
func adminError(err error) *kerr.Error {
	var r *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return r.code
	}
	for _, c := range errorCodes() {
		if c.admin != nil && errors.Is(err, c.is) {
			return c.admin
		}
	}
	return kerr.UnknownServerError
}

// partitionCode is the code to answer for a failure, which is counted, and logged when it is not one that is expected.
func (s *Server) partitionCode(r *request, err error, topic string, partition int32) int16 {
	return s.failed(r, partitionError(err), err, "topic", topic, "partition", partition)
}

// adminCode is the code and the message to answer for a failure about the thing that is named; see partitionCode.
func (s *Server) adminCode(r *request, err error, name string) (int16, *string) {
	code := s.failed(r, adminError(err), err, "name", name)
	if err == nil {
		return code, nil
	}
	message := err.Error()
	if code == kerr.UnknownServerError.Code { // not for the client: it may name hosts, keys or worse
		message = "unexpected failure, see the node's log"
	}
	return code, &message
}

func (s *Server) failed(r *request, code *kerr.Error, err error, about ...any) int16 {
	if code == nil {
		return 0
	}
	s.metrics.Errors.WithLabelValues(r.api.name, code.Message).Inc()
	if code == kerr.UnknownServerError || code == kerr.KafkaStorageError || code == kerr.CorruptMessage && r.api.key == keyFetch {
		s.logger.Error("Kafka request failed", append([]any{"api", r.api.name, "peer", r.peer, "answer", code.Message, "error", err}, about...)...)
	}
	return code.Code
}

// initProducerError is the error for a producer id that cannot be given: producers retry COORDINATOR_NOT_AVAILABLE, and few other codes.
func initProducerError(err error) *kerr.Error {
	code := adminError(err)
	if code == kerr.NotController || code == kerr.RequestTimedOut {
		return kerr.CoordinatorNotAvailable
	}
	return code
}
