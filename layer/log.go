package layer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// LogRecord is ("log", versionstamp): one change of metadata, or a part of a large one. JSON.
//
// Every command that changes nodes, leases (not renewals), tables, streams or transfers appends its changes in its own transaction, in several records
// when they are large (the user part of the versionstamp counts them), and sets ("log_head"), which views watch. TrimLog clears
// records from the front and notes the last one cleared in ("log_trimmed"), so that a view that fell behind notices and reads rows anew.
type LogRecord struct {
	Versionstamp tuple.Versionstamp `json:"-"`
	Command      string             `json:"command"`
	By           string             `json:"by,omitempty"` // node or lease that proposed it
	Changes      []Change           `json:"changes"`
}

// Change is the new value of one row.
type Change struct {
	Keyspace string          `json:"keyspace"`       // node, lease, table, stream, transfer
	ID       int64           `json:"id,omitempty"`   // of a node, table or stream
	Name     string          `json:"name,omitempty"` // of a lease
	Row      json.RawMessage `json:"row,omitempty"`  // absent: the row was cleared
}

// maxRecordRows bounds the rows in one record, bytes; a record of one row is bounded by maxJSONRow.
const maxRecordRows = 60_000

// changed notes the new value of a row for the log; nil for a cleared one.
func (t *tx) changed(keyspace string, id int64, lease string, row any) {
	c := Change{Keyspace: keyspace, ID: id, Name: lease}
	if row != nil {
		b, err := encodeRow(row)
		if err != nil {
			t.fail(err)
			return
		}
		c.Row = b
	}
	t.changes = append(t.changes, c)
}

// writeLog appends what the transaction changed.
func (t *tx) writeLog(command, by string) error {
	var last uint16
	for n := uint16(0); len(t.changes) > 0; n++ {
		count := firstRecord(t.changes)
		value, err := marshal(LogRecord{Command: command, By: by, Changes: t.changes[:count]})
		if err != nil {
			return err
		}
		key, err := tuple.Tuple{spaceLog, tuple.IncompleteVersionstamp(n)}.PackWithVersionstamp(t.s.prefix)
		if err != nil {
			return err
		}
		t.SetVersionstampedKey(key, value)
		t.changes = t.changes[count:]
		last = n
		if len(t.changes) > 0 {
			continue
		}
		head, err := tuple.Tuple{tuple.IncompleteVersionstamp(last)}.PackWithVersionstamp(nil)
		if err != nil {
			return err
		}
		t.SetVersionstampedValue(t.s.key(spaceLogHead), head)
	}
	return nil
}

// firstRecord is how many changes go into one record.
func firstRecord(changes []Change) int {
	size := 0
	for i, c := range changes {
		size += len(c.Row) + len(c.Name) + 80
		if i > 0 && size > maxRecordRows {
			return i
		}
	}
	return len(changes)
}

// decodeRecord decodes one row of the log.
func (s *Store) decodeRecord(row kv.KeyValue) (LogRecord, error) {
	r, err := decodeJSON[LogRecord](s, row.Key, row.Value)
	if err != nil {
		return r, err
	}
	r.Versionstamp, err = s.stampOfKey(row.Key)
	return r, err
}

// stampOfKey takes the versionstamp out of a key of the log or the destroy queue.
func (s *Store) stampOfKey(key []byte) (tuple.Versionstamp, error) {
	t, err := s.unpack(key)
	if err != nil {
		return tuple.Versionstamp{}, err
	}
	if len(t) == 2 {
		if v, ok := t[1].(tuple.Versionstamp); ok {
			return v, nil
		}
	}
	return tuple.Versionstamp{}, fmt.Errorf("%w: key %v has no versionstamp", ErrCorruptRow, t)
}

// readStamp starts reading a row whose value is a versionstamp: ("log_head") or ("log_trimmed").
func (s *Store) readStamp(tr kv.ReadTransaction, space string) future[tuple.Versionstamp] {
	key := s.key(space)
	return future[tuple.Versionstamp]{store: s, key: key, value: tr.Get(key), decode: func(key, value []byte) (tuple.Versionstamp, error) {
		if t, err := tuple.Unpack(value); err == nil && len(t) == 1 {
			if v, ok := t[0].(tuple.Versionstamp); ok {
				return v, nil
			}
		}
		return tuple.Versionstamp{}, fmt.Errorf("%w: %s: %x is not a versionstamp", ErrCorruptRow, s.describe(key), value)
	}}
}

// ReadLog reads up to limit records after a versionstamp (the zero one: from the first that is there), in order.
func (s *Store) ReadLog(ctx context.Context, after tuple.Versionstamp, limit int) ([]LogRecord, error) {
	var out []LogRecord
	err := s.read(ctx, "read log", func(tr kv.ReadTransaction) error {
		var err error
		out, err = s.readLog(tr, after, limit)
		return err
	})
	return out, err
}

func (s *Store) readLog(tr kv.ReadTransaction, position tuple.Versionstamp, limit int) ([]LogRecord, error) {
	_, end := s.span(spaceLog)
	rows, err := tr.GetRange(after(s.key(spaceLog, position)), end, kv.RangeOptions{Limit: limit}).Get()
	if err != nil {
		return nil, err
	}
	out := make([]LogRecord, len(rows))
	for i, row := range rows {
		if out[i], err = s.decodeRecord(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TrimLog clears the records up to and including a versionstamp, by the holder of a lease. Views that have not read so far
// read the rows anew.
func (s *Store) TrimLog(ctx context.Context, lease LeaseRef, through tuple.Versionstamp) error {
	return s.transact(ctx, "trim log", lease, func(t *tx) error {
		holder := t.lease(lease)
		headRow, trimmedRow := s.readStamp(t, spaceLogHead), s.readStamp(t, spaceLogTrimmed)
		if err := holder.held(); err != nil {
			return err
		}
		head, _, err := headRow.get()
		if err != nil {
			return err
		}
		if compareStamps(through, head) > 0 {
			return invalid("trim of the log through %v, its head is %v", through, head)
		}
		trimmed, _, err := trimmedRow.get()
		if err != nil || compareStamps(through, trimmed) <= 0 {
			return err
		}
		begin, _ := s.span(spaceLog)
		t.ClearRange(begin, after(s.key(spaceLog, through)))
		t.Set(s.key(spaceLogTrimmed), tuple.Tuple{through}.Pack())
		return nil
	})
}

// LogHead is the versionstamp of the newest record. A lease holder that notes it every minute and trims through what it noted
// an hour ago judges by no clock but its own.
func (s *Store) LogHead(ctx context.Context) (head tuple.Versionstamp, err error) {
	err = s.read(ctx, "read log head", func(tr kv.ReadTransaction) error {
		head, _, err = s.readStamp(tr, spaceLogHead).get()
		return err
	})
	return head, err
}

// compareStamps orders versionstamps by commit and then by order within it.
func compareStamps(a, b tuple.Versionstamp) int {
	for i := range a.Transaction {
		if d := int(a.Transaction[i]) - int(b.Transaction[i]); d != 0 {
			return d
		}
	}
	return int(a.User) - int(b.User)
}
