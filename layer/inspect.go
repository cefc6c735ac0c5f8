package layer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// InspectOptions choose rows.
type InspectOptions struct {
	Keyspace string // "" = all
	Stream   int64  // 0 = all; else only rows of keyspaces whose keys name a stream, this one
	Node     int64  // 0 = all; likewise
	Limit    int    // rows, 0 = all
}

// InspectRow is one row, decoded.
type InspectRow struct {
	Keyspace string
	Key      tuple.Tuple // without the prefix; nil when it is no tuple
	Value    string      // decoded, for people
	Raw      kv.KeyValue
	Err      error // why it does not decode
}

// space is what inspection knows of a keyspace.
type space struct {
	name         string
	node, stream int // which element of the key is the node id or the stream id, 0 = none
	show         func(s *Store, key, value []byte) (string, error)
}

// spaces lists the keyspaces, in the order of the README.
func spaces() []space {
	return []space{
		{name: spaceFormat, show: showJSON[FormatRow]},
		{name: spaceCounter, show: showJSON[CounterRow]},
		{name: spaceLog, show: showJSON[LogRecord]},
		{name: spaceLogHead, show: showStamp},
		{name: spaceLogTrimmed, show: showStamp},
		{name: spaceNode, node: 1, show: showJSON[NodeRow]},
		{name: spaceHeartbeat, node: 1, show: showJSON[HeartbeatRow]},
		{name: spaceLease, show: showJSON[LeaseRow]},
		{name: spaceTable, show: showJSON[TableRow]},
		{name: spaceTableName, show: showJSON[tableNameRow]},
		{name: spaceDeleting, show: showNothing},
		{name: spaceBucket, show: showJSON[bucketRow]},
		{name: spaceStream, stream: 1, show: showJSON[StreamRow]},
		{name: spaceOwned, node: 1, stream: 2, show: showNothing},
		{name: spaceLoad, node: 1, show: showLoad},
		{name: spaceOpen, node: 1, stream: 3, show: showNothing},
		{name: spaceTransfer, stream: 1, show: showJSON[TransferRow]},
		{name: spaceWAL, node: 1, show: showJSON[WALRow]},
		{name: spaceInline, node: 1, show: showBytes},
		{name: spaceObject, stream: 1, show: showEntry},
		{name: spaceMeta, show: showJSON[ObjectMeta]},
		{name: spacePrepared, show: showJSON[PreparedRow]},
		{name: spaceDestroy, show: showJSON[Doomed]},
		{name: spaceProducer, stream: 1, show: showProducer},
	}
}

// showJSON checks that a control row decodes, and shows it as it is.
func showJSON[T any](s *Store, key, value []byte) (string, error) {
	if _, err := decodeJSON[T](s, key, value); err != nil {
		return strconv.Quote(string(value)), err
	}
	var b bytes.Buffer
	err := json.Compact(&b, value)
	return b.String(), err
}

func showStamp(s *Store, key, value []byte) (string, error) {
	t, err := tuple.Unpack(value)
	if err != nil {
		return fmt.Sprintf("%x", value), fmt.Errorf("%w: %s: %w", ErrCorruptRow, s.describe(key), err)
	}
	return t.String(), nil
}

func showNothing(s *Store, key, value []byte) (string, error) {
	if len(value) > 0 {
		return fmt.Sprintf("%x", value), fmt.Errorf("%w: %s: %d bytes, want none", ErrCorruptRow, s.describe(key), len(value))
	}
	return "", nil
}

func showLoad(s *Store, key, value []byte) (string, error) {
	n, err := s.decodeLoad(key, value)
	if err != nil {
		return fmt.Sprintf("%x", value), err
	}
	return strconv.FormatInt(n, 10), nil
}

func showBytes(_ *Store, _, value []byte) (string, error) {
	return fmt.Sprintf("%d bytes: %x...", len(value), value[:min(len(value), 16)]), nil
}

func showEntry(s *Store, key, value []byte) (string, error) {
	e, err := s.decodeEntry(key, value)
	if err != nil {
		return fmt.Sprintf("%x", value), err
	}
	return fmt.Sprintf("%+v", e), nil
}

func showProducer(s *Store, key, value []byte) (string, error) {
	p, err := s.decodeProducer(key, value)
	if err != nil {
		return fmt.Sprintf("%x", value), err
	}
	return fmt.Sprintf("%+v", p), nil
}

// inspectRows is how many rows are read at once: few, since some are of MaxChunk bytes.
const inspectRows = 100

// Inspect gives rows in the order of their keys, each decoded; those that nothing here knows are given raw, with an Err that says so. It reads in
// several transactions, so the rows are not as of one moment. An error of fn ends it.
func (s *Store) Inspect(ctx context.Context, o InspectOptions, fn func(InspectRow) error) error {
	known := map[string]space{}
	for _, space := range spaces() {
		known[space.name] = space
	}
	if _, ok := known[o.Keyspace]; o.Keyspace != "" && !ok {
		return invalid("keyspace %q: there are %s", o.Keyspace, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	begin, end, err := s.inspectRange(o)
	if err != nil {
		return err
	}
	given := 0
	return s.scan(ctx, begin, end, inspectRows, func(row kv.KeyValue) (bool, error) {
		out := s.inspectRow(known, row)
		if !o.wants(known[out.Keyspace], out.Key) {
			return true, nil
		}
		given++
		return o.Limit == 0 || given < o.Limit, fn(out)
	})
}

func (s *Store) inspectRange(o InspectOptions) (begin, end []byte, err error) {
	if o.Keyspace == "" {
		return tuple.PrefixRange(s.prefix)
	}
	return tuple.PrefixRange(s.key(o.Keyspace))
}

// wants tells whether a row is of the stream and node asked for.
func (o InspectOptions) wants(space space, key tuple.Tuple) bool {
	is := func(element int, id int64) bool {
		return id == 0 || element > 0 && element < len(key) && key[element] == tuple.Element(id)
	}
	return is(space.stream, o.Stream) && is(space.node, o.Node)
}

func (s *Store) inspectRow(known map[string]space, row kv.KeyValue) InspectRow {
	out := InspectRow{Raw: row}
	key, err := s.unpack(row.Key)
	if err != nil {
		out.Value, out.Err = fmt.Sprintf("%x", row.Value), err
		return out
	}
	out.Key = key
	if len(key) > 0 {
		out.Keyspace, _ = key[0].(string)
	}
	space, ok := known[out.Keyspace]
	if !ok {
		out.Value, out.Err = fmt.Sprintf("%x", row.Value), fmt.Errorf("%w: %v: unknown keyspace", ErrCorruptRow, key)
		return out
	}
	out.Value, out.Err = space.show(s, row.Key, row.Value)
	return out
}

// scan reads a range in several transactions, until fn says that it has enough.
func (s *Store) scan(ctx context.Context, begin, end []byte, page int, fn func(kv.KeyValue) (more bool, err error)) error {
	for {
		var rows []kv.KeyValue
		err := s.read(ctx, "scan", func(tr kv.ReadTransaction) (err error) {
			rows, err = tr.Snapshot().GetRange(begin, end, kv.RangeOptions{Limit: page}).Get()
			return err
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			if more, err := fn(row); err != nil || !more {
				return err
			}
		}
		if len(rows) < page {
			return nil
		}
		begin = after(rows[len(rows)-1].Key)
	}
}
