package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
	"github.com/varvedb/varve/wal/segment"
)

func TestErrorsOfPartitions(t *testing.T) {
	cases := []struct {
		err  error
		want *kerr.Error
	}{
		{&nodes.NotLeader{Leader: layer.NodeRow{ID: 2}}, kerr.NotLeaderForPartition},
		{nodes.ErrUnavailable, kerr.NotLeaderForPartition},
		{engine.ErrNotOpen, kerr.NotLeaderForPartition},
		{fmt.Errorf("%w: %w", engine.ErrFenced, layer.ErrReplaced), kerr.NotLeaderForPartition},
		{engine.ErrUnavailable, kerr.KafkaStorageError},
		{fmt.Errorf("%w: %w", engine.ErrBacklogFull, context.DeadlineExceeded), kerr.RequestTimedOut},
		{engine.ErrTimeout, kerr.RequestTimedOut},
		{&engine.ProducerError{Kind: engine.ErrOutOfOrderSequence}, kerr.OutOfOrderSequenceNumber},
		{&engine.ProducerError{Kind: engine.ErrDuplicateTooOld}, kerr.DuplicateSequenceNumber},
		{&engine.ProducerError{Kind: engine.ErrInvalidProducerEpoch}, kerr.InvalidProducerEpoch},
		{&engine.EndedError{}, kerr.PolicyViolation},
		{&engine.OffsetOutOfRange{}, kerr.OffsetOutOfRange},
		{&engine.MissingObjectError{}, kerr.KafkaStorageError},
		{&segment.CorruptError{}, kerr.CorruptMessage},
		{batch.ErrTimestamp, kerr.InvalidTimestamp},
		{batch.ErrTruncated, kerr.CorruptMessage},
		{nodes.ErrUnknownTable, kerr.UnknownTopicOrPartition},
		{errors.New("anything else"), kerr.UnknownServerError},
		{nil, nil},
	}
	for _, c := range cases {
		require.Equal(t, c.want, partitionError(c.err), "%v", c.err)
		if c.err != nil {
			require.Equal(t, c.want, partitionError(fmt.Errorf("wrapped: %w", c.err)), "%v", c.err)
		}
	}
}

func TestErrorsOfMetadataCommands(t *testing.T) {
	require.Equal(t, kerr.NotController, adminError(fmt.Errorf("create: %w", nodes.ErrUnavailable)))
	require.Equal(t, kerr.TopicAlreadyExists, adminError(nodes.ErrTableExists))
	require.Equal(t, kerr.InvalidConfig, adminError(&nodes.InvalidOption{Name: "x"}))
	require.Equal(t, kerr.InvalidPartitions, adminError(nodes.ErrInvalidBuckets))
	require.Equal(t, kerr.CoordinatorNotAvailable, initProducerError(nodes.ErrUnavailable))
	require.Equal(t, kerr.LeaderNotAvailable, metadataError(nodes.ErrUnavailable))
	require.Nil(t, adminError(nil))
}

func TestUnexpectedErrorsAreNotToldToClients(t *testing.T) {
	s := &Server{metrics: NewMetrics(nil), logger: slog.New(slog.DiscardHandler)}
	r := &request{api: api{key: keyCreateTopics, name: "CreateTopics"}}
	code, message := s.adminCode(r, errors.New("secret host"), "t")
	require.Equal(t, kerr.UnknownServerError.Code, code)
	require.NotContains(t, *message, "secret")
}

// TestEveryErrorHasOneLine finds failures that the table lists twice, where the second line would never count.
func TestEveryErrorHasOneLine(t *testing.T) {
	seen := map[error]bool{}
	for _, c := range errorCodes() {
		require.False(t, seen[c.is], "%v", c.is)
		require.NotNil(t, c.partition, "%v", c.is)
		seen[c.is] = true
	}
}
