package layer

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer/kv/tuple"
)

// ViewOptions configure a View.
type ViewOptions struct {
	Node       int64         // whose streams are kept; 0 = none
	Poll       time.Duration // how often the log is read without a watch firing; default 1 s
	MaxStreams int           // how many streams that were asked for are kept; default 10,000
	Logger     *slog.Logger  // default: none
}

func (o ViewOptions) withDefaults() ViewOptions {
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = 10_000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// View is a node's cached picture of the metadata: all nodes, leases, tables and transfers, the streams that its node leads or has open,
// and those that were asked for of late. It follows the log (Run) and may be stale, which costs a redirect and is never unsafe: every
// command checks the rows. Rows that it gives are shared and must not be changed. It is safe for use by several goroutines.
//
// Every row is kept with the version as of which it is known, and a change from the log is applied only when it is newer. So rows may be read
// at any time, before or after their changes are met in the log.
type View struct {
	store   *Store
	options ViewOptions
	log     *slog.Logger

	tail chan struct{} // holds one token; its owner reads the log and applies it

	mu       sync.Mutex // guards what follows
	loaded   bool
	position tuple.Versionstamp // of the last record applied
	rows     *viewRows
	version  int64
	changed  chan struct{}
}

// NewView gives an empty view. Run or Sync fills it.
func NewView(store *Store, options ViewOptions) *View {
	options = options.withDefaults()
	v := &View{
		store: store, options: options, log: options.Logger, tail: make(chan struct{}, 1),
		rows: newViewRows(options.Node, options.MaxStreams), changed: make(chan struct{}),
	}
	v.tail <- struct{}{}
	return v
}

// Loaded tells whether the view has been filled once.
func (v *View) Loaded() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.loaded
}

// Changed gives a channel that is closed at the next change. Take it before looking, so that no change is missed.
func (v *View) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// Version rises with every change.
func (v *View) Version() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.version
}

// notify wakes who waits for a change. The caller holds mu.
func (v *View) notify() {
	v.version++
	close(v.changed)
	v.changed = make(chan struct{})
}

// Table gives the active table of a name.
func (v *View) Table(table string) (TableRow, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id, ok := v.rows.tableByName[table]
	return v.rows.tables[id].row, ok
}

// TableByID gives a table, which may be one that is being deleted.
func (v *View) TableByID(id int64) (TableRow, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, ok := v.rows.tables[id]
	return t.row, ok
}

// TableByUUID gives an active table.
func (v *View) TableByUUID(id uuid.UUID) (TableRow, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	table, ok := v.rows.tableByUUID[id]
	return v.rows.tables[table].row, ok
}

// Tables lists the active tables by name.
func (v *View) Tables() []TableRow {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.rows.sortedTables())
}

// DeletingTables lists the tables that are being deleted, by id.
func (v *View) DeletingTables() []TableRow {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []TableRow
	for _, id := range slices.Sorted(maps.Keys(v.rows.tables)) {
		if t := v.rows.tables[id].row; t.State == TableDeleting {
			out = append(out, t)
		}
	}
	return out
}

// Node gives the row of a node id.
func (v *View) Node(id int64) (NodeRow, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, ok := v.rows.nodes[id]
	return n.row, ok
}

// Nodes lists all rows of nodes by id, fenced ones too.
func (v *View) Nodes() []NodeRow {
	v.mu.Lock()
	defer v.mu.Unlock()
	return sortedRows(v.rows.nodes)
}

// Lease gives the row of a lease. Renewals are not logged: that count is as of when the row was last read or taken.
func (v *View) Lease(lease string) (LeaseRow, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l, ok := v.rows.leases[lease]
	return l.row, ok
}

// Transfer gives the pending transfer of a stream.
func (v *View) Transfer(stream int64) (TransferRow, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, ok := v.rows.transfers[stream]
	return t.row, ok
}

// Transfers lists the pending transfers by stream.
func (v *View) Transfers() []TransferRow {
	v.mu.Lock()
	defer v.mu.Unlock()
	return sortedRows(v.rows.transfers)
}

// Led lists the streams that the view's node leads, or has open though it leads them no more, by id.
func (v *View) Led() []StreamRow {
	v.mu.Lock()
	defer v.mu.Unlock()
	return sortedRows(v.rows.own)
}

// attempts to read a row that can be kept, while the log moves on.
const streamAttempts = 3

// Stream gives a stream's row: what the view has, or else what it reads now and then keeps. ErrStreamNotFound.
func (v *View) Stream(ctx context.Context, id int64) (StreamRow, error) {
	v.mu.Lock()
	row, ok := v.rows.stream(id)
	v.mu.Unlock()
	if ok {
		return row, nil
	}
	return v.fetch(ctx, func(r viewReader) (StreamRow, error) { return r.stream(id) })
}

// Bucket gives the row of a bucket's stream, as Stream does. ErrStreamNotFound.
func (v *View) Bucket(ctx context.Context, table int64, bucket int) (StreamRow, error) {
	v.mu.Lock()
	row, ok := v.rows.bucket(table, bucket)
	v.mu.Unlock()
	if ok {
		return row, nil
	}
	return v.fetch(ctx, func(r viewReader) (StreamRow, error) { return r.bucket(table, bucket) })
}

// fetch reads a stream's row and keeps it. A row as of before the log's position may miss a change that was applied when the row was not there yet, so
// it is read again; a log that keeps moving leaves it unkept.
func (v *View) fetch(ctx context.Context, read func(viewReader) (StreamRow, error)) (StreamRow, error) {
	for attempt := 1; ; attempt++ {
		var row StreamRow
		asOf, err := v.store.readAt(ctx, "read stream", func(r viewReader) (err error) {
			row, err = read(r)
			return err
		})
		if err != nil {
			return row, err
		}
		v.mu.Lock()
		kept := asOf >= stampVersion(v.position)
		if kept {
			v.rows.putStream(row, asOf)
		}
		v.mu.Unlock()
		if kept || attempt == streamAttempts {
			return row, nil
		}
	}
}

func sortedRows[K cmp.Ordered, T any](m map[K]dated[T]) []T {
	out := make([]T, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[key].row)
	}
	return out
}
