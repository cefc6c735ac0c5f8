package layer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kvtest"
)

// Keys as long as those of real clusters.
func segmentName(n int64) string {
	return fmt.Sprintf("ab12/main/wal/1/3/7c9e6679-7425-40de-944b-e07fc1f90ae7/%020d", n)
}

func dataName(kind string, n int) string {
	return fmt.Sprintf("ab12/main/data/%s-7c9e6679-7425-40de-944b-%012d", kind, n)
}

// hotCommand is a command whose work grows with something.
type hotCommand struct {
	name  string
	depth int // exchanges of reads that come one after the other in each of its transactions
	// prepare makes n things and gives the command.
	prepare func(f *fixture, n int) func() error
	// parts is how many transactions the command may take for n things; nil: one.
	parts func(n int) int
}

func hotCommands() []hotCommand {
	// a pack of n streams, each alone in an object and with a producer, from n segments
	pack := func(f *fixture, n int) Pack {
		ids := f.openMany(n)
		p := Pack{Node: f.node, FirstLive: 1, Next: int64(n) + 1, At: epochTime}
		for i, id := range ids {
			object := dataName("pack", i)
			p.Objects = append(p.Objects, ObjectMeta{Object: object, Size: 1000, Kind: DataObject})
			p.Entries = append(p.Entries, entry(id, 0, 10, object))
			p.Producers = append(p.Producers, producer(id, 7, 0, ProducerBatch{Base: 0, Last: 9}))
			p.Segments = append(p.Segments, segmentName(int64(i)+1))
		}
		for some := range slices.Chunk(p.Objects, maxPrepare) {
			var keys []string
			for _, o := range some {
				keys = append(keys, o.Object)
			}
			require.NoError(f.t, f.Prepare(f.ctx, f.node, keys, epochTime))
		}
		return p
	}
	return []hotCommand{
		{name: "CommitPack, many streams in many objects", depth: 1, parts: func(n int) int { return n/100 + 3 }, prepare: func(f *fixture, n int) func() error {
			p := pack(f, n)
			return func() error { return f.CommitPack(f.ctx, p) }
		}},
		{name: "CommitPack, many streams in one object", depth: 1, parts: func(n int) int { return n/300 + 3 }, prepare: func(f *fixture, n int) func() error {
			p := pack(f, n)
			p.Objects = p.Objects[:1]
			for i := range p.Entries {
				p.Entries[i].Object = p.Objects[0].Object
			}
			return func() error { return f.CommitPack(f.ctx, p) }
		}},
		{name: "Adopt, many segments", depth: 1, parts: func(n int) int { return n/100 + 3 }, prepare: func(f *fixture, n int) func() error {
			p := pack(f, n)
			require.NoError(f.t, f.FenceSelf(f.ctx, f.node))
			a := Adoption{Dead: f.node, Seq: 1, Next: p.Next, Entries: p.Entries, Producers: p.Producers, At: epochTime}
			for i := range a.Entries {
				a.Entries[i].Object = p.Segments[i]
				a.Objects = append(a.Objects, ObjectMeta{Object: p.Segments[i], Size: 1000, Kind: AdoptedSegment})
			}
			return func() error { return f.Adopt(f.ctx, f.other, a) }
		}},
		{name: "MergeEntries", depth: 1, prepare: func(f *fixture, n int) func() error {
			n = min(n, maxMerge)
			entries := f.index(n)
			f.prepare(dataName("merged", 0))
			return func() error {
				return f.MergeEntries(f.ctx, f.node, f.ids[0], 1, entries, entry(f.ids[0], 0, int64(n)*10, dataName("merged", 0)),
					ObjectMeta{Object: dataName("merged", 0), Size: 1, Kind: DataObject}, epochTime)
			}
		}},
		{name: "TrimStream", depth: 3, prepare: func(f *fixture, n int) func() error {
			f.index(n)
			return func() error {
				_, _, err := f.TrimStream(f.ctx, f.node, f.ids[0], 1, int64(n)*10-5)
				return err
			}
		}},
		{name: "CloseStreamsOf", depth: 2, prepare: func(f *fixture, n int) func() error {
			f.openMany(n)
			require.NoError(f.t, f.FenceSelf(f.ctx, f.node))
			require.NoError(f.t, f.SealWAL(f.ctx, f.other, f.node, 1))
			return func() error {
				_, _, err := f.CloseStreamsOf(f.ctx, f.other, f.node, n)
				return err
			}
		}},
		{name: "DestroyStreams", depth: 3, parts: func(n int) int { return n/64 + 3 }, prepare: func(f *fixture, n int) func() error {
			row, _, err := f.CreateTable(f.ctx, f.node, CreateTable{Name: "doomed", UUID: f.request(), Kind: LogTable, Buckets: n, RequestID: f.request(), At: epochTime})
			require.NoError(f.t, err)
			require.NoError(f.t, f.DeleteTable(f.ctx, f.node, row.ID, f.request()))
			return func() error {
				_, _, err := f.DestroyStreams(f.ctx, f.lease, 10*n)
				return err
			}
		}},
		{name: "DestroyStreams, many entries", depth: 4, parts: func(n int) int { return n/128 + 4 }, prepare: func(f *fixture, n int) func() error {
			f.index(n)
			require.NoError(f.t, f.DeleteTable(f.ctx, f.node, f.table.ID, f.request()))
			return func() error {
				_, _, err := f.DestroyStreams(f.ctx, f.lease, 100)
				return err
			}
		}},
		{name: "CreateTable", depth: 1, parts: func(n int) int { return n/256 + 5 }, prepare: func(f *fixture, n int) func() error {
			return func() error {
				_, _, err := f.CreateTable(f.ctx, f.node, CreateTable{Name: "new", UUID: f.request(), Kind: LogTable, Buckets: min(n, 256), RequestID: f.request(), At: epochTime})
				return err
			}
		}},
		{name: "DeleteTable", depth: 3, parts: func(n int) int { return n/256 + 1 }, prepare: func(f *fixture, n int) func() error {
			row := f.createTable("doomed", make([]int64, n)...)
			return func() error { return f.DeleteTable(f.ctx, f.node, row.ID, f.request()) }
		}},
		{name: "ExpirePrepared", depth: 1, parts: func(n int) int { return 2 + n/preparedPage }, prepare: func(f *fixture, n int) func() error {
			for i := range n {
				f.prepare(dataName("expired", i))
			}
			return func() error {
				_, err := f.ExpirePrepared(f.ctx, f.lease, epochTime.AddDate(1, 0, 0), n)
				return err
			}
		}},
		{name: "ForgetProducers", depth: 1, prepare: func(f *fixture, n int) func() error {
			ids := make([]int64, n)
			for i := range ids {
				ids[i] = int64(i)
			}
			f.open(0)
			return func() error { return f.ForgetProducers(f.ctx, f.node, f.ids[0], 1, ids) }
		}},
		{name: "Streams", depth: 2, parts: func(n int) int { return n/streamsPerRead + 1 }, prepare: func(f *fixture, n int) func() error {
			row := f.createTable("many", make([]int64, n)...)
			return func() error {
				_, err := f.Streams(f.ctx, row.ID)
				return err
			}
		}},
		{name: "Tables", depth: 2, prepare: func(f *fixture, n int) func() error {
			for i := range n {
				f.createTable(fmt.Sprint("table", i), 1)
			}
			return func() error {
				_, err := f.Tables(f.ctx, "", n)
				return err
			}
		}},
		{name: "loading a view", depth: 2, parts: func(n int) int { return 6 + 3*n/loadRows }, prepare: func(f *fixture, n int) func() error {
			f.openMany(n)
			view := NewView(f.Store, ViewOptions{Node: f.node.ID})
			return func() error { return view.Sync(f.ctx) }
		}},
		{name: "OpenStream", depth: 2, prepare: func(f *fixture, _ int) func() error {
			return func() error {
				_, err := f.OpenStream(f.ctx, f.node, f.ids[0], 1)
				return err
			}
		}},
		{name: "PutInline", depth: 1, prepare: func(f *fixture, n int) func() error {
			return func() error { return f.PutInline(f.ctx, f.node, 1, make([]byte, min(n*1000, MaxInlineSegment))) }
		}},
		{name: "Prepare", depth: 1, prepare: func(f *fixture, n int) func() error {
			objects := make([]string, n)
			for i := range objects {
				objects[i] = dataName("new", i)
			}
			return func() error { return f.Prepare(f.ctx, f.node, objects, epochTime) }
		}},
		{name: "InlineSegments", depth: 3, prepare: func(f *fixture, n int) func() error {
			for i := range n {
				require.NoError(f.t, f.PutInline(f.ctx, f.node, int64(i)+1, make([]byte, 1000)))
			}
			return func() error {
				segments, err := f.InlineSegments(f.ctx, f.node, 1, 8<<20)
				require.Len(f.t, segments, n)
				return err
			}
		}},
		{name: "DeadWALs", depth: 2, parts: func(n int) int { return 1 + n/walsPerRead }, prepare: func(f *fixture, n int) func() error {
			for range n {
				f.register(3)
			}
			return func() error {
				_, err := f.DeadWALs(f.ctx, 0)
				return err
			}
		}},
		{name: "Opened", depth: 2, prepare: func(f *fixture, n int) func() error {
			f.openMany(n)
			return func() error {
				_, err := f.Opened(f.ctx, f.node, 0, n)
				return err
			}
		}},
		{name: "buckets of a view", depth: 2, parts: func(n int) int { return 1 + n/streamsPerRead }, prepare: func(f *fixture, n int) func() error {
			table := f.createTable("many", make([]int64, n)...)
			view := NewView(f.Store, ViewOptions{Node: f.node.ID})
			require.NoError(f.t, view.Sync(f.ctx))
			return func() error {
				rows, err := view.Buckets(f.ctx, table)
				require.Len(f.t, rows, n)
				return err
			}
		}},
		{name: "following the log", depth: 1, parts: func(n int) int { return 2 + n/maxTailRecords }, prepare: func(f *fixture, n int) func() error {
			view := NewView(f.Store, ViewOptions{Node: f.node.ID})
			require.NoError(f.t, view.Sync(f.ctx))
			for range n {
				_, err := f.AlterTable(f.ctx, f.node, f.table.ID, map[string]string{"a": "b"}, nil, f.request())
				require.NoError(f.t, err)
			}
			return func() error { return view.Sync(f.ctx) }
		}},
	}
}

// openMany creates n streams and has the node open them.
func (f *fixture) openMany(n int) []int64 {
	f.t.Helper()
	leaders := make([]int64, n)
	for i := range leaders {
		leaders[i] = f.node.ID
	}
	row := f.createTable(fmt.Sprint("many", n), leaders...)
	streams, err := f.Streams(f.ctx, row.ID)
	require.NoError(f.t, err)
	ids := make([]int64, n)
	for i, s := range streams {
		ids[i] = s.ID
		_, err := f.OpenStream(f.ctx, f.node, s.ID, 1)
		require.NoError(f.t, err)
	}
	return ids
}

// index gives stream 0 n entries, each in an object of its own.
func (f *fixture) index(n int) []ObjectEntry {
	f.t.Helper()
	f.open(0)
	p := Pack{Node: f.node, FirstLive: 1, Next: 2, At: epochTime}
	for i := range n {
		object := dataName("small", i)
		p.Objects = append(p.Objects, f.prepare(object)...)
		p.Entries = append(p.Entries, entry(f.ids[0], int64(i)*10, int64(i+1)*10, object))
	}
	require.NoError(f.t, f.CommitPack(f.ctx, p))
	return p.Entries
}

// Each transaction of a command has its reads under way together: how many exchanges come one after the other does not grow with how much the command does. It
// stays under the size that the layer allows itself.
func TestExchangesDoNotGrowWithTheWork(t *testing.T) {
	for _, c := range hotCommands() {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range []int{1, 30, 1000} {
				db := &distant{Database: kvtest.Open(t)}
				f := newFixtureOn(t, db)
				run := c.prepare(f, n)
				db.measured()
				require.NoError(t, run())
				runs, most := db.measured()
				t.Logf("%d: %d transactions, at most %+v", n, runs, most)
				require.LessOrEqual(t, most.depth, c.depth, "exchanges one after the other, of %d", n)
				require.Less(t, most.size, int64(kv.TargetTransactionSize))
				allowed := 1
				if c.parts != nil {
					allowed = c.parts(n)
				}
				require.LessOrEqual(t, runs, allowed, "transactions for %d", n)
				f.healthy()
			}
		})
	}
}
