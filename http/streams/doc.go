// Package streams serves streams over HTTP by the Durable Streams protocol (PROTOCOL.md of durable-streams/durable-streams):
// create, append, close, catch-up reads, long poll, server-sent events, metadata and delete under /v1/stream/{path}.
//
// A stream is a table of one bucket whose name is the path. An append is one record batch: a JSON array gives a record an element, any
// other body one record. A Kafka topic is read and appended to the same way; ?partition= chooses one of several.
//
// Deviations and choices are in README.md.
package streams

import (
	"context"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/engine"
)

// Broker is what the listener needs of a node.
type Broker interface {
	Table(ctx context.Context, name string) (layer.TableRow, error)
	Tables() []layer.TableRow
	Stream(ctx context.Context, table string, bucket int) (*engine.Stream, error)
	CreateTable(ctx context.Context, create nodes.CreateTable) (layer.TableRow, error)
	DeleteTable(ctx context.Context, name string) error
}
