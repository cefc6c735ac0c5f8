package layer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// Problem is a broken invariant of the metadata.
type Problem struct {
	Kind   string // which invariant, in a word or two
	Key    string // of the row that shows it
	Detail string
}

// leftoverKind begins the kind of what is no harm.
const leftoverKind = "leftover "

// Leftover tells that nothing is wrong but for rows that a command left behind and a later one clears.
func (p Problem) Leftover() bool { return strings.HasPrefix(p.Kind, leftoverKind) }

// String is one line.
func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.Kind, p.Key, p.Detail) }

// checkTime is how long the rows may take to be read at one version; transactions live for five seconds.
const checkTime = 3 * time.Second

// Check reads all metadata but the log's records into memory and reports each broken invariant. Metadata that cannot be read at one version within seconds is read
// twice, at several versions, and what both readings show is reported.
func (s *Store) Check(ctx context.Context, report func(Problem)) error {
	begin, end, err := tuple.PrefixRange(s.prefix)
	if err != nil {
		return err
	}
	var rows *checkRows
	slow := false
	err = s.read(ctx, "check", func(tr kv.ReadTransaction) error {
		rows, slow = newCheckRows(), false
		from, start := begin, time.Now()
		for {
			page, err := tr.Snapshot().GetRange(from, end, kv.RangeOptions{Limit: loadRows}).Get()
			if err != nil {
				return err
			}
			for _, row := range page {
				rows.add(s, row)
			}
			if len(page) < loadRows {
				return nil
			}
			if slow = time.Since(start) > checkTime; slow {
				return nil
			}
			from = after(page[len(page)-1].Key)
		}
	})
	if err != nil {
		return err
	}
	problems := rows.check
	if slow {
		problems, err = s.checkTwice(ctx, begin, end)
		if err != nil {
			return err
		}
	}
	for _, p := range problems() {
		report(p)
	}
	return nil
}

func (s *Store) checkTwice(ctx context.Context, begin, end []byte) (func() []Problem, error) {
	var readings [2][]Problem
	for i := range readings {
		rows := newCheckRows()
		err := s.scan(ctx, begin, end, loadRows, func(row kv.KeyValue) (bool, error) {
			rows.add(s, row)
			return true, nil
		})
		if err != nil {
			return nil, err
		}
		readings[i] = rows.check()
	}
	both := slices.DeleteFunc(readings[1], func(p Problem) bool { return !slices.Contains(readings[0], p) })
	return func() []Problem { return both }, nil
}

// checkRows is all metadata, decoded.
type checkRows struct {
	problems []Problem

	nodes      map[int64]NodeRow
	heartbeats map[int64]HeartbeatRow
	leases     map[string]LeaseRow
	tables     map[int64]TableRow
	names      map[string]int64
	deleting   map[int64]bool
	buckets    map[bucketKey]int64
	streams    map[int64]StreamRow
	owned      map[[2]int64]bool
	loads      map[int64]int64
	open       map[[3]int64]bool
	transfers  map[int64]TransferRow
	wals       map[NodeRef]WALRow
	inline     map[[3]int64]bool // node, epoch, seq
	entries    map[int64][]ObjectEntry
	metas      map[string]ObjectMeta
	prepared   map[string]PreparedRow
	doomed     map[string]bool
	producers  []ProducerState
	counters   map[string]int64
	format     bool
	head       tuple.Versionstamp
	trimmed    tuple.Versionstamp
	lastLog    tuple.Versionstamp
}

func newCheckRows() *checkRows {
	return &checkRows{
		nodes: map[int64]NodeRow{}, heartbeats: map[int64]HeartbeatRow{}, leases: map[string]LeaseRow{}, tables: map[int64]TableRow{},
		names: map[string]int64{}, deleting: map[int64]bool{}, buckets: map[bucketKey]int64{}, streams: map[int64]StreamRow{},
		owned: map[[2]int64]bool{}, loads: map[int64]int64{}, open: map[[3]int64]bool{}, transfers: map[int64]TransferRow{},
		wals: map[NodeRef]WALRow{}, inline: map[[3]int64]bool{}, entries: map[int64][]ObjectEntry{}, metas: map[string]ObjectMeta{},
		prepared: map[string]PreparedRow{}, doomed: map[string]bool{}, counters: map[string]int64{},
	}
}

func (c *checkRows) problem(kind string, key tuple.Tuple, format string, args ...any) {
	c.problems = append(c.problems, Problem{Kind: kind, Key: key.String(), Detail: fmt.Sprintf(format, args...)})
}

func (c *checkRows) leftover(kind string, key tuple.Tuple, format string, args ...any) {
	c.problem(leftoverKind+kind, key, format, args...)
}

// add decodes one row.
func (c *checkRows) add(s *Store, row kv.KeyValue) {
	key, err := s.unpack(row.Key)
	if err == nil && len(key) == 0 {
		err = fmt.Errorf("%w: a row at the bare prefix", ErrCorruptRow)
	}
	if err == nil {
		err = c.addRow(s, key, row)
	}
	if err != nil {
		c.problems = append(c.problems, Problem{Kind: "corrupt row", Key: s.describe(row.Key), Detail: err.Error()})
	}
}

// addRow puts a row where the checks look for it.
func (c *checkRows) addRow(s *Store, key tuple.Tuple, row kv.KeyValue) error {
	space, _ := key[0].(string)
	switch space {
	case spaceFormat:
		c.format = true
		return nil
	case spaceLogHead, spaceLogTrimmed:
		return c.addStamp(space, key, row)
	case spaceLease, spaceTableName, spaceCounter, spaceMeta, spacePrepared:
		return c.addNamed(s, space, key, row)
	case spaceLog, spaceDestroy:
		return c.addStamped(s, space, row)
	}
	return c.addNumbered(s, space, key, row)
}

func (c *checkRows) addStamp(space string, key tuple.Tuple, row kv.KeyValue) error {
	t, err := tuple.Unpack(row.Value)
	if err != nil {
		return err
	}
	v, ok := tuple.Versionstamp{}, false
	if len(t) == 1 {
		v, ok = t[0].(tuple.Versionstamp)
	}
	if !ok {
		return fmt.Errorf("%w: %v is no versionstamp", ErrCorruptRow, key)
	}
	if space == spaceLogHead {
		c.head = v
	} else {
		c.trimmed = v
	}
	return nil
}

func (c *checkRows) addStamped(s *Store, space string, row kv.KeyValue) error {
	if space == spaceDestroy {
		d, err := s.decodeDoomed(row.Key, row.Value)
		c.doomed[d.Object] = true
		return err
	}
	r, err := s.decodeRecord(row)
	c.lastLog = r.Versionstamp
	return err
}

func (c *checkRows) addNamed(s *Store, space string, key tuple.Tuple, row kv.KeyValue) (err error) {
	id := ""
	if len(key) == 2 {
		id, _ = key[1].(string)
	}
	if id == "" {
		return fmt.Errorf("%w: key %v", ErrCorruptRow, key)
	}
	switch space {
	case spaceLease:
		c.leases[id], err = decodeJSON[LeaseRow](s, row.Key, row.Value)
	case spaceTableName:
		var n tableNameRow
		n, err = decodeJSON[tableNameRow](s, row.Key, row.Value)
		c.names[id] = n.Table
	case spaceCounter:
		var n CounterRow
		n, err = decodeJSON[CounterRow](s, row.Key, row.Value)
		c.counters[id] = n.Next
	case spaceMeta:
		c.metas[id], err = decodeJSON[ObjectMeta](s, row.Key, row.Value)
	case spacePrepared:
		c.prepared[id], err = decodeJSON[PreparedRow](s, row.Key, row.Value)
	}
	return err
}

func (c *checkRows) addNumbered(s *Store, space string, key tuple.Tuple, row kv.KeyValue) error {
	ids, err := s.ints(row.Key, len(key)-1)
	if err != nil {
		return err
	}
	want := map[string]int{
		spaceNode: 1, spaceHeartbeat: 1, spaceTable: 1, spaceDeleting: 1, spaceBucket: 2, spaceStream: 1, spaceOwned: 2, spaceLoad: 1, spaceOpen: 3,
		spaceTransfer: 1, spaceWAL: 2, spaceInline: 4, spaceObject: 2, spaceProducer: 2,
	}[space]
	if want != len(ids) {
		return fmt.Errorf("%w: key %v: unknown keyspace or wrong number of elements", ErrCorruptRow, key)
	}
	switch space {
	case spaceNode:
		c.nodes[ids[0]], err = decodeJSON[NodeRow](s, row.Key, row.Value)
	case spaceHeartbeat:
		c.heartbeats[ids[0]], err = decodeJSON[HeartbeatRow](s, row.Key, row.Value)
	case spaceTable:
		c.tables[ids[0]], err = decodeJSON[TableRow](s, row.Key, row.Value)
	case spaceDeleting:
		c.deleting[ids[0]] = true
	case spaceBucket:
		var b bucketRow
		b, err = decodeJSON[bucketRow](s, row.Key, row.Value)
		c.buckets[bucketKey{ids[0], int(ids[1])}] = b.Stream
	case spaceStream:
		c.streams[ids[0]], err = decodeJSON[StreamRow](s, row.Key, row.Value)
	case spaceOwned:
		c.owned[[2]int64(ids)] = true
	case spaceLoad:
		c.loads[ids[0]], err = s.decodeLoad(row.Key, row.Value)
	case spaceOpen:
		c.open[[3]int64(ids)] = true
	case spaceTransfer:
		c.transfers[ids[0]], err = decodeJSON[TransferRow](s, row.Key, row.Value)
	case spaceWAL:
		c.wals[NodeRef{ids[0], ids[1]}], err = decodeJSON[WALRow](s, row.Key, row.Value)
	case spaceInline:
		c.inline[[3]int64(ids[:3])] = true
	case spaceObject:
		var e ObjectEntry
		e, err = s.decodeEntry(row.Key, row.Value)
		c.entries[ids[0]] = append(c.entries[ids[0]], e)
	case spaceProducer:
		var p ProducerState
		p, err = s.decodeProducer(row.Key, row.Value)
		c.producers = append(c.producers, p)
	}
	return err
}

// check finds the problems, in a fixed order.
func (c *checkRows) check() []Problem {
	c.checkNodes()
	c.checkLogs()
	c.checkTables()
	c.checkStreams()
	c.checkIndexes()
	c.checkEntries()
	c.checkObjects()
	c.checkProducers()
	c.checkRest()
	slices.SortFunc(c.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Detail, b.Detail))
	})
	return c.problems
}
