package wal

import (
	"context"
	"errors"
	"log/slog"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

var errNotWritten = errors.New("not yet written")

// Log is the writer of one node epoch's write-ahead log.
type Log struct{}

// NewLog makes a log that Start starts.
func NewLog(o Options) *Log { return &Log{} }

// Start begins; the log's writes end when ctx does or Close is called.
func (l *Log) Start(ctx context.Context) {}

// Close makes durable what was appended, waits for it until ctx ends, and then for everything that the log started. What is not
// durable by then fails with ErrClosed.
func (l *Log) Close(ctx context.Context) error { return errNotWritten }

// Reserve waits until n more bytes fit the backlog. It is asked before an append, outside of locks that packing needs; it holds nothing
// back, so nothing has to be given back when the append is not made.
func (l *Log) Reserve(ctx context.Context, n int) error { return errNotWritten }

// Append never blocks. The entries stay together in one segment, in order; their data must not change any more. done is called once, in the order of appends, never two at a time: with nil when
// this and every earlier append are durable, otherwise with ErrFenced, ErrStopped or ErrClosed. It must be quick and must not call Append... 
func (l *Log) Append(entries []segment.Entry, done func(error)) {}

// Acknowledged lists the acknowledged segments from the first live one on. A segment is listed before done is called for what it holds.
func (l *Log) Acknowledged() []*Segment { return nil }

// Packed says that segments below next are covered by index entries: the first live number has moved there.
func (l *Log) Packed(next int64) {}

// Failed is closed when the log has failed for good.
func (l *Log) Failed() <-chan struct{} { return nil }

// Err is why it failed: an ErrFenced or an ErrStopped; nil before.
func (l *Log) Err() error { return nil }

// RecoverOptions of Recover.
type RecoverOptions struct {
	Layer   Layer
	Store   objects.Store
	Cluster string
	By      layer.NodeRef // who recovers
	Dead    layer.NodeRef // whose log; its node epoch is fenced or replaced already
	Logger  *slog.Logger
	Metrics *Metrics
}

// Result of Recover.
type Result struct {
	Segments int   // taken by this call
	Bytes    int64 // of them
	Entries  int64 // index entries offered to the layer
	SealedAt int64 // the number at which the log ends
}

// Recover ends the log of a dead node epoch.
func Recover(ctx context.Context, o RecoverOptions) (Result, error) { return Result{}, errNotWritten }

// ChooseMode says what fences segments in this store; requested "" lets the probe decide.
func ChooseMode(ctx context.Context, store objects.Store, requested layer.FenceMode) (layer.FenceMode, error) {
	return "", errNotWritten
}
