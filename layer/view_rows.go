package layer

import (
	"cmp"
	"container/list"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// dated is a row and the version as of which it is known.
type dated[T any] struct {
	row  T
	asOf int64
}

// bucketKey names a bucket.
type bucketKey struct {
	table  int64
	bucket int
}

// viewRows is the contents of a view. Its owner serialises all use.
type viewRows struct {
	node       int64 // whose streams are kept
	maxStreams int

	nodes       map[int64]dated[NodeRow]
	leases      map[string]dated[LeaseRow]
	tables      map[int64]dated[TableRow]
	tableByName map[string]int64
	tableByUUID map[uuid.UUID]int64
	sorted      []TableRow // active tables by name; nil when it has to be made anew
	transfers   map[int64]dated[TransferRow]

	own      map[int64]dated[StreamRow] // led or open by node
	asked    map[int64]*list.Element    // others, of dated[StreamRow]
	recent   *list.List                 // of asked, the latest used first
	byBucket map[bucketKey]int64        // of own and asked
}

func newViewRows(node int64, maxStreams int) *viewRows {
	return &viewRows{
		node: node, maxStreams: maxStreams,
		nodes: map[int64]dated[NodeRow]{}, leases: map[string]dated[LeaseRow]{}, tables: map[int64]dated[TableRow]{},
		tableByName: map[string]int64{}, tableByUUID: map[uuid.UUID]int64{}, transfers: map[int64]dated[TransferRow]{},
		own: map[int64]dated[StreamRow]{}, asked: map[int64]*list.Element{}, recent: list.New(), byBucket: map[bucketKey]int64{},
	}
}

// apply takes a change that was committed at a version. Keyspaces that it does not know, of newer binaries, are skipped.
func (r *viewRows) apply(c Change, version int64) error {
	switch c.Keyspace {
	case spaceNode:
		return change(r.nodes, c.ID, c, version)
	case spaceLease:
		return change(r.leases, c.Name, c, version)
	case spaceTransfer:
		return change(r.transfers, c.ID, c, version)
	case spaceTable:
		return r.applyTable(c, version)
	case spaceStream:
		return r.applyStream(c, version)
	}
	return nil
}

// change applies a change to a map of rows.
func change[K comparable, T any](rows map[K]dated[T], key K, c Change, version int64) error {
	if known, ok := rows[key]; ok && known.asOf >= version {
		return nil
	}
	if c.Row == nil {
		delete(rows, key)
		return nil
	}
	row, err := decodeChange[T](c)
	if err == nil {
		rows[key] = dated[T]{row: row, asOf: version}
	}
	return err
}

func decodeChange[T any](c Change) (row T, err error) {
	if err := json.Unmarshal(c.Row, &row); err != nil {
		return row, fmt.Errorf("%w: logged change of %s %d%s: %w", ErrCorruptRow, c.Keyspace, c.ID, c.Name, err)
	}
	return row, nil
}

func (r *viewRows) applyTable(c Change, version int64) error {
	old, ok := r.tables[c.ID]
	if err := change(r.tables, c.ID, c, version); err != nil {
		return err
	}
	if ok {
		r.unindexTable(old.row)
	}
	if current, ok := r.tables[c.ID]; ok {
		r.indexTable(current.row)
	}
	return nil
}

func (r *viewRows) putTable(row TableRow, asOf int64) {
	r.tables[row.ID] = dated[TableRow]{row: row, asOf: asOf}
	r.indexTable(row)
}

func (r *viewRows) indexTable(row TableRow) {
	r.sorted = nil
	if row.State == TableActive {
		r.tableByName[row.Name] = row.ID
		r.tableByUUID[row.UUID] = row.ID
	}
}

func (r *viewRows) unindexTable(row TableRow) {
	r.sorted = nil
	if r.tableByName[row.Name] == row.ID {
		delete(r.tableByName, row.Name)
	}
	if r.tableByUUID[row.UUID] == row.ID {
		delete(r.tableByUUID, row.UUID)
	}
}

func (r *viewRows) sortedTables() []TableRow {
	if r.sorted == nil {
		r.sorted = make([]TableRow, 0, len(r.tableByName))
		for _, id := range r.tableByName {
			r.sorted = append(r.sorted, r.tables[id].row)
		}
		slices.SortFunc(r.sorted, func(a, b TableRow) int { return cmp.Compare(a.Name, b.Name) })
	}
	return r.sorted
}

func (r *viewRows) isOwn(row StreamRow) bool {
	return r.node != 0 && (row.Leader == r.node || row.OpenBy.ID == r.node)
}

// known gives a stream without counting it as used.
func (r *viewRows) known(id int64) (dated[StreamRow], bool) {
	if d, ok := r.own[id]; ok {
		return d, true
	}
	if e, ok := r.asked[id]; ok {
		return e.Value.(dated[StreamRow]), true
	}
	return dated[StreamRow]{}, false
}

func (r *viewRows) stream(id int64) (StreamRow, bool) {
	d, ok := r.known(id)
	if e, asked := r.asked[id]; asked {
		r.recent.MoveToFront(e)
	}
	return d.row, ok
}

func (r *viewRows) bucket(table int64, bucket int) (StreamRow, bool) {
	id, ok := r.byBucket[bucketKey{table, bucket}]
	if !ok {
		return StreamRow{}, false
	}
	return r.stream(id)
}

// applyStream keeps a change of a stream that is or becomes the node's own, or was asked for.
func (r *viewRows) applyStream(c Change, version int64) error {
	known, ok := r.known(c.ID)
	if ok && known.asOf >= version {
		return nil
	}
	if c.Row == nil {
		r.removeStream(c.ID)
		return nil
	}
	row, err := decodeChange[StreamRow](c)
	if err != nil {
		return err
	}
	if ok || r.isOwn(row) {
		r.putStream(row, version)
	}
	return nil
}

// putStream keeps a row unless a newer one is kept.
func (r *viewRows) putStream(row StreamRow, asOf int64) {
	if known, ok := r.known(row.ID); ok && known.asOf > asOf {
		return
	}
	d := dated[StreamRow]{row: row, asOf: asOf}
	r.byBucket[bucketKey{row.Table, row.Bucket}] = row.ID
	if r.isOwn(row) {
		if e, ok := r.asked[row.ID]; ok {
			r.recent.Remove(e)
			delete(r.asked, row.ID)
		}
		r.own[row.ID] = d
		return
	}
	delete(r.own, row.ID)
	if e, ok := r.asked[row.ID]; ok {
		e.Value = d
		return
	}
	r.asked[row.ID] = r.recent.PushFront(d)
	if r.recent.Len() > r.maxStreams {
		r.removeStream(r.recent.Back().Value.(dated[StreamRow]).row.ID)
	}
}

func (r *viewRows) removeStream(id int64) {
	d, ok := r.known(id)
	if !ok {
		return
	}
	delete(r.byBucket, bucketKey{d.row.Table, d.row.Bucket})
	delete(r.own, id)
	if e, ok := r.asked[id]; ok {
		r.recent.Remove(e)
		delete(r.asked, id)
	}
}
