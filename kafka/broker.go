package kafka

import (
	"context"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/engine"
)

// Broker is what the listener needs of a node; *nodes.Node is one. A topic is a table and a partition one of its buckets.
type Broker interface {
	// Stream gives the stream of a partition that this node leads. Errors: nodes.ErrUnknownTable, nodes.ErrUnknownBucket, *nodes.NotLeader,
	// nodes.ErrUnavailable.
	Stream(ctx context.Context, table string, bucket int) (*engine.Stream, error)
	StreamByUUID(ctx context.Context, id uuid.UUID, bucket int) (*engine.Stream, error)

	Table(ctx context.Context, name string) (layer.TableRow, error)
	TableByUUID(id uuid.UUID) (layer.TableRow, bool)
	Tables() []layer.TableRow
	// Partitions lists a table's streams by bucket.
	Partitions(ctx context.Context, table string) ([]layer.StreamRow, error)

	CreateTable(ctx context.Context, create nodes.CreateTable) (layer.TableRow, error)
	DeleteTable(ctx context.Context, name string) error
	AlterTable(ctx context.Context, name string, set map[string]string, remove []string) (layer.TableRow, error)
	AddBuckets(ctx context.Context, name string, target int, validateOnly bool) (layer.TableRow, error)

	LiveNodes() []layer.NodeRow
	Self() layer.NodeRow
	Cluster() string
	Controller() (layer.NodeRow, bool)
	// ProducerID gives an id that no producer has had.
	ProducerID(ctx context.Context) (int64, error)
}

// appendable and readable are the parts of *engine.Stream that Produce and Fetch use, so that their rules can be tested with streams that
// answer as a test says.
type appendable interface {
	Epoch() int64
	Start() int64
	Reserve(ctx context.Context, bytes int) error
	AppendAsync(a engine.Append, done func(engine.AppendResult, error))
}

type readable interface {
	Epoch() int64
	Start() int64
	End() int64
	Read(ctx context.Context, r engine.Read) (engine.ReadResult, error)
	Notify(c chan<- struct{}) (stop func())
}

var (
	_ Broker     = (*nodes.Node)(nil)
	_ appendable = (*engine.Stream)(nil)
	_ readable   = (*engine.Stream)(nil)
)
