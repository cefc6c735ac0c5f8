package layer

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// full is a cluster with rows in every keyspace.
func full(t *testing.T) *fixture {
	f := newFixture(t)
	packSetup(f)
	require.NoError(t, runPack(f))
	_, err := f.BeginTransfer(f.ctx, f.node, f.ids[0], 2, 1, epochTime)
	require.NoError(t, err)
	head, err := f.LogHead(f.ctx)
	require.NoError(t, err)
	require.NoError(t, f.TrimLog(f.ctx, f.lease, head))
	doomed := f.createTable("doomed", 1)
	require.NoError(t, f.DeleteTable(f.ctx, f.node, doomed.ID, f.request()))
	f.prepare("prepared")
	return f
}

func TestInspectShowsEveryKeyspace(t *testing.T) {
	f := full(t)
	seen := map[string]int{}
	require.NoError(t, f.Inspect(f.ctx, InspectOptions{}, func(r InspectRow) error {
		require.NoError(t, r.Err)
		seen[r.Keyspace]++
		return nil
	}))
	for _, space := range spaces() {
		require.Positive(t, seen[space.name], space.name)
		n := 0
		require.NoError(t, f.Inspect(f.ctx, InspectOptions{Keyspace: space.name}, func(r InspectRow) error {
			require.Equal(t, space.name, r.Keyspace)
			n++
			return nil
		}))
		require.Equal(t, seen[space.name], n, space.name)
	}
}

func TestInspectChooses(t *testing.T) {
	f := full(t)
	keys := func(o InspectOptions) (out []string) {
		require.NoError(t, f.Inspect(f.ctx, o, func(r InspectRow) error {
			out = append(out, r.Key.String())
			return nil
		}))
		return out
	}
	require.Equal(t, []string{
		`("object", 3, 5)`, `("open", 1, 1, 3)`, `("owned", 1, 3)`, `("producer", 3, 7)`, `("stream", 3)`,
	}, keys(InspectOptions{Stream: 3}))
	require.Equal(t, []string{`("heartbeat", 2)`, `("load", 2)`, `("node", 2)`, `("owned", 2, 2)`, `("owned", 2, 4)`, `("wal", 2, 1)`}, keys(InspectOptions{Node: 2}))
	require.Equal(t, []string{`("owned", 2, 4)`}, keys(InspectOptions{Node: 2, Stream: 4}))
	require.Len(t, keys(InspectOptions{Limit: 3}), 3)
	require.ErrorIs(t, f.Inspect(f.ctx, InspectOptions{Keyspace: "nonsense"}, nil), ErrInvalid)
}

// Anything below the prefix is shown, whatever it is.
func TestInspectShowsWhatItDoesNotKnow(t *testing.T) {
	f := newFixture(t)
	_, err := f.db.Transact(f.ctx, func(tr kv.Transaction) error {
		tr.Set(f.key("future", 1), []byte{0xab})
		tr.Set(append(slices.Clone(f.prefix), 0xfe, 0x01), []byte{0xcd})
		tr.Set(f.key(spaceNode, 7), []byte("{not json"))
		tr.Set(f.key(spaceObject, 1, 1), []byte{9})
		return nil
	})
	require.NoError(t, err)
	found := map[string]error{}
	require.NoError(t, f.Inspect(f.ctx, InspectOptions{}, func(r InspectRow) error {
		if r.Err != nil {
			found[r.Value] = r.Err
		}
		return nil
	}))
	require.Len(t, found, 4)
	for value, err := range found {
		require.ErrorIs(t, err, ErrCorruptRow, value)
	}
	require.Contains(t, found, "ab")
	require.Contains(t, found, "cd")
	require.Contains(t, found, `"{not json"`)
	require.ErrorContains(t, found["09"], `("object", 1, 1)`)
	problems, err := f.problems(f.ctx)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(problems), 4)
}

// Check finds each way in which the rows can be wrong.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	type rows = *tx
	edit := func(f *fixture, row any, key []byte, change func()) func(rows) {
		return func(t *tx) {
			b, err := t.Get(key).Get()
			require.NoError(f.t, err)
			require.NoError(f.t, json.Unmarshal(b, row))
			change()
			t.setJSON(key, row)
		}
	}
	for _, c := range []struct {
		kind string
		do   func(f *fixture) func(rows)
	}{
		{"format", func(f *fixture) func(rows) { return func(t rows) { t.Clear(f.key(spaceFormat)) } }},
		{"heartbeat", func(f *fixture) func(rows) { return func(t rows) { t.Clear(f.key(spaceHeartbeat, 1)) } }},
		{"log missing", func(f *fixture) func(rows) { return func(t rows) { t.Clear(f.key(spaceWAL, 2, 1)) } }},
		{"opener", func(f *fixture) func(rows) {
			f.open(1)
			require.NoError(f.t, f.FenceSelf(f.ctx, f.other))
			return func(t rows) { t.Clear(f.key(spaceWAL, 2, 1)) }
		}},
		{"log row", func(f *fixture) func(rows) {
			var w WALRow
			return edit(f, &w, f.key(spaceWAL, 2, 1), func() { w.FirstLive = 0 })
		}},
		{"seal", func(f *fixture) func(rows) {
			var w WALRow
			return edit(f, &w, f.key(spaceWAL, 1, 1), func() { w.SealedAt = &w.FirstLive })
		}},
		{"inline rows", func(f *fixture) func(rows) {
			return func(t rows) { t.Set(f.key(spaceInline, 7, 1, 1, 0), []byte("x")) }
		}},
		{"leftover inline rows", func(f *fixture) func(rows) {
			return func(t rows) { t.Set(f.key(spaceInline, 1, 1, 1, 0), []byte("x")) }
		}},
		{"lease row", func(f *fixture) func(rows) {
			var l LeaseRow
			return edit(f, &l, f.key(spaceLease, CoordinatorLease), func() { l.Holder.Epoch = 9 })
		}},
		{"table name", func(f *fixture) func(rows) { return func(t rows) { t.Clear(f.key(spaceTableName, "t")) } }},
		{"table state", func(f *fixture) func(rows) { return func(t rows) { t.Set(f.key(spaceDeleting, f.table.ID), []byte{}) } }},
		{"buckets", func(f *fixture) func(rows) { return func(t rows) { t.Clear(f.key(spaceBucket, f.table.ID, 3)) } }},
		{"bucket", func(f *fixture) func(rows) { return func(t rows) { t.Clear(f.key(spaceStream, f.ids[3])) } }},
		{"stream state", func(f *fixture) func(rows) {
			var s StreamRow
			return edit(f, &s, f.key(spaceStream, f.ids[1]), func() { s.State = StreamDeleting })
		}},
		{"stream row", func(f *fixture) func(rows) {
			var s StreamRow
			return edit(f, &s, f.key(spaceStream, f.ids[1]), func() { s.Epoch = 9 })
		}},
		{"opener", func(f *fixture) func(rows) {
			var s StreamRow
			return edit(f, &s, f.key(spaceStream, f.ids[0]), func() { s.OpenBy.Epoch = 4 })
		}},
		{"transfer", func(f *fixture) func(rows) {
			var s TransferRow
			return edit(f, &s, f.key(spaceTransfer, f.ids[0]), func() { s.From = 2 })
		}},
		{"owned index", func(f *fixture) func(rows) { return func(t rows) { t.Clear(f.key(spaceOwned, 1, f.ids[0])) } }},
		{"owned index", func(f *fixture) func(rows) { return func(t rows) { t.Set(f.key(spaceOwned, 2, f.ids[0]), []byte{}) } }},
		{"open index", func(f *fixture) func(rows) { return func(t rows) { t.Clear(f.key(spaceOpen, 1, 1, f.ids[0])) } }},
		{"open index", func(f *fixture) func(rows) { return func(t rows) { t.Set(f.key(spaceOpen, 2, 1, f.ids[1]), []byte{}) } }},
		{"load", func(f *fixture) func(rows) { return func(t rows) { t.addLoad(1, 1) } }},
		{"entries", func(f *fixture) func(rows) { return func(t rows) { t.clearEntry(entry(f.ids[0], 10, 20, "o2")) } }},
		{"entries", func(f *fixture) func(rows) { return func(t rows) { t.clearEntry(entry(f.ids[0], 0, 10, "o1")) } }},
		{"entries", func(f *fixture) func(rows) { return func(t rows) { t.setEntry(entry(f.ids[0], 29, 31, "o1")) } }},
		{"entries", func(f *fixture) func(rows) { return func(t rows) { t.setEntry(entry(77, 0, 1, "o1")) } }},
		{"entries", func(f *fixture) func(rows) {
			var s StreamRow
			return edit(f, &s, f.key(spaceStream, f.ids[0]), func() { s.Start = 31 })
		}},
		{"references", func(f *fixture) func(rows) { return func(t rows) { t.Clear(f.key(spaceMeta, "o1")) } }},
		{"references", func(f *fixture) func(rows) {
			var m ObjectMeta
			return edit(f, &m, f.key(spaceMeta, "o1"), func() { m.Refs++ })
		}},
		{"references", func(f *fixture) func(rows) {
			return func(t rows) { t.setJSON(f.key(spaceMeta, "x"), ObjectMeta{Object: "x", Kind: DataObject}) }
		}},
		{"destroy queue", func(f *fixture) func(rows) {
			return func(t rows) { require.NoError(f.t, t.doom("o1", "broken", epochTime)) }
		}},
		{"prepared row", func(f *fixture) func(rows) {
			return func(t rows) { t.setJSON(f.key(spacePrepared, "x"), PreparedRow{Object: "x", Node: NodeRef{8, 8}}) }
		}},
		{"producer", func(f *fixture) func(rows) {
			return func(t rows) { t.Set(f.key(spaceProducer, 77, 1), encodeProducer(ProducerState{})) }
		}},
		{"producer", func(f *fixture) func(rows) {
			p := producer(f.ids[1], 1, 0, ProducerBatch{Base: 0, Last: 0})
			return func(t rows) { t.Set(f.key(spaceProducer, p.Stream, 1), encodeProducer(p)) }
		}},
		{"counter", func(f *fixture) func(rows) {
			return func(t rows) { t.setJSON(f.key(spaceCounter, "stream"), CounterRow{Next: 2}) }
		}},
		{"log head", func(f *fixture) func(rows) {
			return func(t rows) { t.Set(f.key(spaceLogHead), tuple.Tuple{tuple.Versionstamp{}}.Pack()) }
		}},
		{"corrupt row", func(f *fixture) func(rows) { return func(t rows) { t.Set(f.key(spaceNode, "text"), []byte("{}")) } }},
	} {
		t.Run(c.kind, func(t *testing.T) {
			f := full(t)
			f.healthy()
			breaking := c.do(f)
			require.NoError(t, f.transact(f.ctx, "break", f.node, func(t *tx) error {
				breaking(t)
				return nil
			}))
			kinds := map[string]bool{}
			require.NoError(t, f.Check(f.ctx, func(p Problem) {
				kinds[p.Kind] = true
				require.Equal(t, p.Kind == "leftover inline rows", p.Leftover())
			}))
			require.True(t, kinds[c.kind], "%v", kinds)

			// What cannot be read at one version is read twice.
			begin, end, err := tuple.PrefixRange(f.prefix)
			require.NoError(t, err)
			again, err := f.checkTwice(f.ctx, begin, end)
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(again(), func(p Problem) bool { return p.Kind == c.kind }))
		})
	}
}

func TestDestroyQueueLeavesReadersTheirGrace(t *testing.T) {
	f := newFixture(t)
	now := epochTime
	f.now = func() time.Time { return now }
	f.prepare("a")
	_, err := f.ExpirePrepared(f.ctx, f.lease, epochTime.Add(time.Second), 10)
	require.NoError(t, err)
	now = now.Add(time.Minute)
	f.prepare("b")
	_, err = f.ExpirePrepared(f.ctx, f.lease, epochTime.Add(time.Second), 10)
	require.NoError(t, err)
	queue, err := f.DestroyQueue(f.ctx, 10, epochTime.Add(time.Minute))
	require.NoError(t, err)
	require.Len(t, queue, 1)
	require.Equal(t, "a", queue[0].Object)
	require.NoError(t, f.Destroyed(f.ctx, f.lease, queue))
	require.Equal(t, []string{"b"}, f.doomed())
}
