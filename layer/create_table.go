package layer

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
)

// CreateTable says what table is wanted.
type CreateTable struct {
	Name      string
	UUID      uuid.UUID
	Kind      TableKind
	Buckets   int
	Options   map[string]string
	Leaders   []int64 // node id per bucket, placed by the caller; 0 or missing = none yet
	RequestID uuid.UUID
	At        time.Time
}

func (c CreateTable) validate() error {
	switch {
	case c.Name == "" || len(c.Name) > MaxTableName:
		return invalid("table name %.80q of %d bytes, 1 to %d fit", c.Name, len(c.Name), MaxTableName)
	case c.Kind != LogTable:
		return invalid("table %q: kind %q", c.Name, c.Kind)
	case c.Buckets < 1 || c.Buckets > MaxBuckets:
		return invalid("table %q: %d buckets, 1 to %d fit", c.Name, c.Buckets, MaxBuckets)
	case len(c.Leaders) > c.Buckets:
		return invalid("table %q: %d leaders of %d buckets", c.Name, len(c.Leaders), c.Buckets)
	case c.RequestID == uuid.Nil || c.UUID == uuid.Nil:
		return invalid("table %q: no request id or no UUID", c.Name)
	}
	return validateOptions(c.Name, c.Options)
}

func validateOptions(table string, options map[string]string) error {
	size := 0
	for key, value := range options {
		size += len(key) + len(value)
	}
	if size > MaxOptionBytes {
		return invalid("table %s: options of %d bytes, at most %d fit", table, size, MaxOptionBytes)
	}
	return nil
}

// CreateTable creates a table and its streams, closed and at leader epoch 1. ErrTableExists. Many buckets take several transactions: the row has
// Buckets below Target meanwhile, and AddBuckets to Target, or the same request, goes on after a crash. A repeated request gets the first one's table.
func (s *Store) CreateTable(ctx context.Context, by NodeRef, c CreateTable) (row TableRow, streams []StreamRow, err error) {
	if err := c.validate(); err != nil {
		return row, nil, err
	}
	id, err := s.tableIDs.Next(ctx)
	if err != nil {
		return row, nil, err
	}
	first := min(c.Buckets, s.bounds.buckets)
	ids, err := s.streamIDs.Take(ctx, first)
	if err != nil {
		return row, nil, err
	}
	repeated := false
	err = s.transact(ctx, "create table", by, func(t *tx) error {
		self, taken, own := t.node(by), readJSON[tableNameRow](s, t, s.key(spaceTableName, c.Name)), t.table(id)
		if err := self.alive(); err != nil {
			return err
		}
		index, ok, err := taken.get()
		if err != nil {
			return err
		}
		if repeated = ok; ok {
			if row, err = t.table(index.Table).active(); err == nil && row.RequestID != c.RequestID {
				err = fmt.Errorf("%w: %q", ErrTableExists, c.Name)
			}
			return err
		}
		if _, ok, err := own.get(); ok || err != nil {
			if ok { // an earlier run was committed, and the table is being deleted already
				err = fmt.Errorf("%w: %q", ErrTableNotFound, c.Name)
			}
			return err
		}
		row = TableRow{
			ID: id, Name: c.Name, UUID: c.UUID, Kind: c.Kind, Target: c.Buckets, Options: maps.Clone(c.Options),
			CreatedAt: stamp(c.At), RequestID: c.RequestID, State: TableActive,
		}
		t.setJSON(s.key(spaceTableName, c.Name), tableNameRow{Table: id})
		streams = t.addStreams(&row, ids, c.Leaders)
		t.setTable(row)
		return nil
	})
	if err != nil {
		return TableRow{}, nil, err
	}
	return s.completeTable(ctx, by, row, streams, repeated, c.Leaders)
}

// addStreams creates the next streams of a table, with the leaders of their buckets (indexed by bucket), and counts them in the row.
func (t *tx) addStreams(row *TableRow, ids []int64, leaders []int64) []StreamRow {
	streams := make([]StreamRow, len(ids))
	for i, id := range ids {
		stream := StreamRow{ID: id, Table: row.ID, Bucket: row.Buckets, State: StreamClosed, LeaderEpoch: 1}
		if stream.Bucket < len(leaders) {
			stream.Leader = leaders[stream.Bucket]
		}
		t.setJSON(t.s.key(spaceBucket, row.ID, stream.Bucket), bucketRow{Stream: id})
		t.setStream(StreamRow{}, stream)
		streams[i] = stream
		row.Buckets++
	}
	return streams
}

// completeTable adds streams up to the target, a transaction at a time, and gives all of the table's streams. known are those that this call created so far.
func (s *Store) completeTable(ctx context.Context, by NodeRef, row TableRow, known []StreamRow, reread bool, leaders []int64) (TableRow, []StreamRow, error) {
	for row.Buckets < row.Target {
		reread = true
		ids, err := s.streamIDs.Take(ctx, min(row.Target-row.Buckets, s.bounds.buckets))
		if err != nil {
			return row, nil, err
		}
		from := row.Buckets
		err = s.transact(ctx, "add buckets", by, func(t *tx) error {
			self, table := t.node(by), t.table(row.ID)
			if err := self.alive(); err != nil {
				return err
			}
			current, err := table.active()
			if err != nil {
				return err
			}
			row = current
			if row.Buckets != from {
				return nil // an earlier run, or somebody else, got on
			}
			t.addStreams(&row, ids, leaders)
			t.setTable(row)
			return nil
		})
		if err != nil {
			return row, nil, err
		}
	}
	if !reread {
		return row, known, nil
	}
	streams, err := s.Streams(ctx, row.ID)
	return row, streams, err
}

// AddBuckets raises a table's buckets to target; leaders are those of the buckets from TableRow.Buckets, as the caller saw it, on. It is complete when it
// returns; with the row's own target it finishes what a crash left. ErrTableNotFound; a target below the row's is ErrInvalid.
func (s *Store) AddBuckets(ctx context.Context, by NodeRef, table int64, target int, leaders []int64, requestID uuid.UUID) (row TableRow, streams []StreamRow, err error) {
	if target < 1 || target > MaxBuckets {
		return row, nil, invalid("table %d: %d buckets, 1 to %d fit", table, target, MaxBuckets)
	}
	first := -1 // buckets before, so that leaders stay with the buckets that they were meant for
	err = s.transact(ctx, "raise buckets", by, func(t *tx) error {
		self, read := t.node(by), t.table(table)
		if err := self.alive(); err != nil {
			return err
		}
		if row, err = read.active(); err != nil {
			return err
		}
		if first < 0 {
			first = row.Buckets
		}
		if target < row.Target {
			return invalid("table %q: %d buckets are wanted, it has %d", row.Name, target, row.Target)
		}
		if target > row.Target && row.remember(requestID) {
			row.Target = target
			t.setTable(row)
		}
		return nil
	})
	if err != nil {
		return TableRow{}, nil, err
	}
	byBucket := append(make([]int64, first, first+len(leaders)), leaders...)
	return s.completeTable(ctx, by, row, nil, true, byBucket)
}
