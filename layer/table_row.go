package layer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer/kv"
)

// TableKind says what a table's buckets are.
type TableKind string

// LogTable is append-only. No other kind exists yet.
const LogTable TableKind = "log"

// TableState is where a table is in its life.
type TableState string

const (
	// TableActive tables serve.
	TableActive TableState = "active"
	// TableDeleting tables have no name any more; DestroyStreams removes their streams and then the row.
	TableDeleting TableState = "deleting"
)

// Bounds of a table.
const (
	MaxTableName   = 1024    // bytes
	MaxBuckets     = 100_000 // per table
	MaxOptionBytes = 30_000  // keys and values of all options of a table together
)

// TableRow is ("table", id). JSON. ("table_name", name) names the active table of that name, {"table": id}.
//
// Written by CreateTable, AddBuckets, AlterTable and DeleteTable, which clears the name; cleared by DestroyStreams after the table's last
// stream. ("deleting", id), empty, lists the tables that DestroyStreams has to do with.
type TableRow struct {
	ID        int64             `json:"id"`
	Name      string            `json:"name"`
	UUID      uuid.UUID         `json:"uuid"` // Kafka's topic id
	Kind      TableKind         `json:"kind"`
	Buckets   int               `json:"buckets"` // streams that exist: buckets 0 to Buckets-1
	Target    int               `json:"target"`  // streams that are wanted; the lease holder finishes what a crash left
	Options   map[string]string `json:"options,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	RequestID uuid.UUID         `json:"request_id"` // of the creation
	State     TableState        `json:"state"`
	Recent    []uuid.UUID       `json:"recent,omitempty"` // request ids of the last changes, so that a repeated one changes nothing
}

// maxRecent is how many request ids a table row remembers.
const maxRecent = 8

// tableNameRow is ("table_name", name).
type tableNameRow struct {
	Table int64 `json:"table"`
}

// remember notes a request id; false when it was there already.
func (r *TableRow) remember(request uuid.UUID) bool {
	if slices.Contains(r.Recent, request) {
		return false
	}
	r.Recent = append(slices.Clone(r.Recent[max(0, len(r.Recent)-maxRecent+1):]), request)
	return true
}

// tableRead is a table row that is being read.
type tableRead struct {
	id int64
	future[TableRow]
}

func (s *Store) readTable(tr kv.ReadTransaction, id int64) tableRead {
	return tableRead{id: id, future: readJSON[TableRow](s, tr, s.key(spaceTable, id))}
}

func (t *tx) table(id int64) tableRead { return t.s.readTable(t, id) }

// active waits for the row of a table that is there and not being deleted.
func (r tableRead) active() (TableRow, error) {
	row, ok, err := r.get()
	if err == nil && (!ok || row.State != TableActive) {
		err = fmt.Errorf("%w: %d", ErrTableNotFound, r.id)
	}
	return row, err
}

func (t *tx) setTable(row TableRow) {
	t.setJSON(t.s.key(spaceTable, row.ID), row)
	t.changed(spaceTable, row.ID, "", row)
}

// Table reads one row, also of a table that is being deleted. ErrTableNotFound.
func (s *Store) Table(ctx context.Context, id int64) (row TableRow, err error) {
	err = s.read(ctx, fmt.Sprintf("read table %d", id), func(tr kv.ReadTransaction) error {
		var ok bool
		row, ok, err = s.readTable(tr, id).get()
		if err == nil && !ok {
			err = fmt.Errorf("%w: %d", ErrTableNotFound, id)
		}
		return err
	})
	return row, err
}

// TableByName reads the row of the active table of a name. ErrTableNotFound.
func (s *Store) TableByName(ctx context.Context, table string) (row TableRow, err error) {
	err = s.read(ctx, fmt.Sprintf("read table %q", table), func(tr kv.ReadTransaction) error {
		index, ok, err := readJSON[tableNameRow](s, tr, s.key(spaceTableName, table)).get()
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: %q", ErrTableNotFound, table)
		}
		row, err = s.readTable(tr, index.Table).active()
		return err
	})
	return row, err
}

// Tables reads up to limit active tables in the order of their names, after a given name ("": from the first).
func (s *Store) Tables(ctx context.Context, afterName string, limit int) (rows []TableRow, err error) {
	err = s.read(ctx, "read tables", func(tr kv.ReadTransaction) error {
		rows, err = s.tablePage(tr, afterName, limit)
		return err
	})
	return rows, err
}

func (s *Store) tablePage(tr kv.ReadTransaction, afterName string, limit int) ([]TableRow, error) {
	begin, end := s.span(spaceTableName)
	if afterName != "" {
		begin = after(s.key(spaceTableName, afterName))
	}
	index, err := tr.GetRange(begin, end, kv.RangeOptions{Limit: limit}).Get()
	if err != nil {
		return nil, err
	}
	reads := make([]tableRead, len(index))
	for i, row := range index {
		n, err := decodeJSON[tableNameRow](s, row.Key, row.Value)
		if err != nil {
			return nil, err
		}
		reads[i] = s.readTable(tr, n.Table)
	}
	rows := make([]TableRow, len(index))
	for i, r := range reads {
		if rows[i], err = r.active(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}
