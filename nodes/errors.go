package nodes

import (
	"errors"
	"fmt"

	"github.com/varvedb/varve/layer"
)

// Failures that callers branch on. Protocols map each to their own words in one table.
var (
	// ErrUnknownTable: no table has the name or id. Not retryable, though a table that was created a moment ago may be meant.
	ErrUnknownTable = errors.New("no such stream or topic")
	// ErrUnknownBucket: the table has fewer buckets.
	ErrUnknownBucket = errors.New("no such partition")
	// ErrUnavailable: what was asked for cannot be served now: the stream is being opened or moved, the node is starting or stopping,
	// the metadata cannot be reached. Retryable.
	ErrUnavailable = errors.New("unavailable")
	// ErrTableExists: a table has the name already.
	ErrTableExists = errors.New("stream or topic exists")
	// ErrInvalidName: a table cannot have this name.
	ErrInvalidName = errors.New("invalid name")
	// ErrInvalidOption: a table option is unknown, or its value is refused. errors.As gives *InvalidOption.
	ErrInvalidOption = errors.New("invalid option")
	// ErrInvalidBuckets: the number of buckets is not one that a table can have.
	ErrInvalidBuckets = errors.New("invalid number of partitions")
	// ErrInvalidRequest: an administrator's request names something that is not there, or makes no sense.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrFenced: this node epoch is fenced or replaced, and will never serve again. The process exits and registers anew.
	ErrFenced = errors.New("node is fenced")
)

// NotLeader says that another node serves the stream. It is an answer, not a fault: clients go to the leader named.
type NotLeader struct {
	Leader      layer.NodeRow // the node that should serve the stream; ID 0 while there is none
	LeaderEpoch int64         // leader epoch of the stream, as this node knows it
	Table       string
	Bucket      int
}

func (e *NotLeader) Error() string {
	if e.Leader.ID == 0 {
		return fmt.Sprintf("partition %d of %q has no live leader (leader epoch %d)", e.Bucket, e.Table, e.LeaderEpoch)
	}
	return fmt.Sprintf("partition %d of %q is led by node %d (leader epoch %d)", e.Bucket, e.Table, e.Leader.ID, e.LeaderEpoch)
}

// InvalidOption is the refusal of one table option.
type InvalidOption struct {
	Name, Value, Reason string
}

func (e *InvalidOption) Error() string {
	return fmt.Sprintf("option %s=%q: %s", e.Name, e.Value, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidOption) true.
func (e *InvalidOption) Is(target error) bool { return target == ErrInvalidOption }

// fenced tells whether err says that this node epoch is over.
func fenced(err error) bool {
	return errors.Is(err, layer.ErrFenced) || errors.Is(err, layer.ErrReplaced) || errors.Is(err, ErrFenced)
}

// unavailable wraps ErrUnavailable with what was being done.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnavailable, fmt.Sprintf(format, args...))
}
