package layer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer/kv/tuple"
)

var errNotWritten = errors.New("not yet written")

// InspectOptions choose rows.
type InspectOptions struct {
	Keyspace string
	Stream   int64 // 0 = all
	Node     int64 // 0 = all
	Limit    int   // rows, 0 = all
}

// InspectRow is one row, decoded.
type InspectRow struct {
	Keyspace string
	Key      tuple.Tuple
	Value    string // decoded, for people
	Raw      []byte
	Err      error // why it does not decode
}

func (s *Store) Inspect(ctx context.Context, o InspectOptions, fn func(InspectRow) error) error {
	return errNotWritten
}

// Problem is a broken invariant.
type Problem struct {
	Kind   string
	Key    string
	Detail string
}

func (s *Store) Check(ctx context.Context, fn func(Problem)) error { return errNotWritten }

// ViewOptions configure a View.
type ViewOptions struct {
	Node       int64         // whose streams are kept
	Poll       time.Duration // how often the log is read without a watch firing; default 1 s
	MaxStreams int           // how many streams of others are kept; default 10,000
	Logger     *slog.Logger
}

// View is a node's cached picture of the metadata.
type View struct{}

func NewView(store *Store, options ViewOptions) *View     { return &View{} }
func (v *View) Run(ctx context.Context) error             { return errNotWritten }
func (v *View) Sync(ctx context.Context) error            { return errNotWritten }
func (v *View) Table(name string) (TableRow, bool)        { return TableRow{}, false }
func (v *View) TableByID(id int64) (TableRow, bool)       { return TableRow{}, false }
func (v *View) TableByUUID(id uuid.UUID) (TableRow, bool) { return TableRow{}, false }
func (v *View) Tables() []TableRow                        { return nil }
func (v *View) Node(id int64) (NodeRow, bool)             { return NodeRow{}, false }
func (v *View) Nodes() []NodeRow                          { return nil }
func (v *View) Lease(name string) (LeaseRow, bool)        { return LeaseRow{}, false }
func (v *View) Transfer(stream int64) (TransferRow, bool) { return TransferRow{}, false }
func (v *View) Transfers() []TransferRow                  { return nil }
func (v *View) Stream(ctx context.Context, id int64) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}
func (v *View) Bucket(ctx context.Context, table int64, bucket int) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}

// Led lists the streams that the view's node leads or has open, by id.
func (v *View) Led() []StreamRow { return nil }

// Changed is closed at the next change.
func (v *View) Changed() <-chan struct{} { return nil }

// Version rises with every change.
func (v *View) Version() int64 { return 0 }
