package layer

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// commandCase is one command in a state in which it does something.
type commandCase struct {
	name  string
	setup func(*fixture)
	run   func(*fixture) error
	// again is what a second call after the first answers; nil: success that changes nothing. Commands that do one more of something
	// each time they are called (counting says so) are compared by the lost answers alone.
	again    error
	counting bool
	// by tells who proposes: the node, the lease, or neither.
	node, lease bool
}

func commands() []commandCase {
	deadNode := func(f *fixture) {
		f.open(1)
		require.NoError(f.t, f.FenceSelf(f.ctx, f.other))
	}
	sealed := func(f *fixture) {
		deadNode(f)
		require.NoError(f.t, f.SealWAL(f.ctx, f.node, f.other, FirstSegment))
	}
	closed := func(f *fixture) {
		require.NoError(f.t, f.PutInline(f.ctx, f.other, 1, []byte("x")))
		sealed(f)
		_, _, err := f.CloseStreamsOf(f.ctx, f.node, f.other, 10)
		require.NoError(f.t, err)
	}
	return []commandCase{
		{name: "RegisterNode", run: func(f *fixture) error {
			_, _, err := f.RegisterNode(f.ctx, NodeInfo{ID: 3, Slots: 2}, FenceBoth, testUUID(100), testUUID(101), epochTime)
			return err
		}},
		{name: "Heartbeat", node: true, counting: true, run: func(f *fixture) error {
			_, err := f.Heartbeat(f.ctx, f.node)
			return err
		}},
		{name: "FenceNode", lease: true, run: func(f *fixture) error { return f.FenceNode(f.ctx, f.lease, f.other, 0) }},
		{name: "FenceSelf", run: func(f *fixture) error { return f.FenceSelf(f.ctx, f.node) }},
		{name: "SetSlots", run: func(f *fixture) error { return f.SetSlots(f.ctx, 2, 7) }},
		{name: "ResetSlots", setup: func(f *fixture) { require.NoError(f.t, f.SetSlots(f.ctx, 2, 7)) }, run: func(f *fixture) error { return f.ResetSlots(f.ctx, 2) }},
		{name: "AcquireLease", node: true, run: func(f *fixture) error {
			_, err := f.AcquireLease(f.ctx, f.node, "tiering", LeaseRow{})
			return err
		}},
		{name: "RenewLease", lease: true, counting: true, run: func(f *fixture) error {
			_, err := f.RenewLease(f.ctx, f.lease)
			return err
		}},
		{name: "ReleaseLease", run: func(f *fixture) error { return f.ReleaseLease(f.ctx, f.lease) }},
		{name: "CreateTable", node: true, run: func(f *fixture) error {
			_, _, err := f.CreateTable(f.ctx, f.node, CreateTable{
				Name: "new", UUID: testUUID(100), Kind: LogTable, Buckets: 3, Leaders: []int64{1, 2}, RequestID: testUUID(101), At: epochTime})
			return err
		}},
		{name: "CreateTable in several transactions", node: true, setup: func(f *fixture) { f.bounds.buckets = 2 }, run: func(f *fixture) error {
			_, streams, err := f.CreateTable(f.ctx, f.node, CreateTable{
				Name: "new", UUID: testUUID(100), Kind: LogTable, Buckets: 5, Leaders: []int64{1, 2, 1, 2, 2}, RequestID: testUUID(101), At: epochTime})
			if err == nil && len(streams) != 5 {
				return fmt.Errorf("%d streams", len(streams))
			}
			return err
		}},
		{name: "AddBuckets", node: true, setup: func(f *fixture) { f.bounds.buckets = 2 }, run: func(f *fixture) error {
			_, _, err := f.AddBuckets(f.ctx, f.node, f.table.ID, 7, []int64{1, 2, 1}, testUUID(100))
			return err
		}},
		{name: "AlterTable", node: true, run: func(f *fixture) error {
			_, err := f.AlterTable(f.ctx, f.node, f.table.ID, map[string]string{"retention.ms": "5"}, []string{"x"}, testUUID(100))
			return err
		}},
		{name: "DeleteTable", node: true, setup: func(f *fixture) { f.bounds.buckets = 3 }, run: func(f *fixture) error {
			return f.DeleteTable(f.ctx, f.node, f.table.ID, testUUID(100))
		}},
		{name: "DestroyStreams", lease: true, setup: func(f *fixture) {
			f.pack(0, 0, 10, "o1")
			f.pack(2, 0, 10, "o2")
			require.NoError(f.t, f.DeleteTable(f.ctx, f.node, f.table.ID, testUUID(100)))
		}, run: func(f *fixture) error {
			_, _, err := f.DestroyStreams(f.ctx, f.lease, 100)
			return err
		}},
		{name: "LeadBucket", lease: true, run: func(f *fixture) error {
			_, err := f.LeadBucket(f.ctx, f.lease, f.ids[0], 2, 1)
			return err
		}},
		{name: "LeadAgain", node: true, run: func(f *fixture) error {
			_, err := f.LeadAgain(f.ctx, f.node, f.ids[0], 1)
			return err
		}},
		{name: "OpenStream", node: true, run: func(f *fixture) error {
			_, err := f.OpenStream(f.ctx, f.node, f.ids[0], 1)
			return err
		}},
		{name: "CloseStream", node: true, setup: func(f *fixture) { f.open(0) }, run: func(f *fixture) error {
			return f.CloseStream(f.ctx, f.node, f.ids[0], 1)
		}},
		{name: "CloseStreamsOf", node: true, setup: sealed, run: func(f *fixture) error {
			_, _, err := f.CloseStreamsOf(f.ctx, f.node, f.other, 10)
			return err
		}},
		{name: "EndStream", node: true, setup: func(f *fixture) { f.open(0) }, run: func(f *fixture) error {
			return f.EndStream(f.ctx, f.node, f.ids[0], 1, 5)
		}},
		{name: "TrimStream", node: true, setup: func(f *fixture) {
			f.pack(0, 0, 10, "o1")
			f.pack(0, 10, 20, "o2")
		}, run: func(f *fixture) error {
			_, _, err := f.TrimStream(f.ctx, f.node, f.ids[0], 1, 15)
			return err
		}},
		{name: "BeginTransfer", node: true, run: func(f *fixture) error {
			_, err := f.BeginTransfer(f.ctx, f.node, f.ids[0], 2, 1, epochTime)
			return err
		}},
		{name: "CompleteTransfer", node: true, setup: func(f *fixture) {
			f.open(0)
			require.NoError(f.t, f.CloseStream(f.ctx, f.node, f.ids[0], 1))
			_, err := f.BeginTransfer(f.ctx, f.node, f.ids[0], 2, 1, epochTime)
			require.NoError(f.t, err)
		}, run: func(f *fixture) error {
			_, err := f.CompleteTransfer(f.ctx, f.node, f.ids[0], 1)
			return err
		}},
		{name: "CancelTransfer", node: true, setup: func(f *fixture) {
			_, err := f.BeginTransfer(f.ctx, f.node, f.ids[0], 2, 1, epochTime)
			require.NoError(f.t, err)
		}, run: func(f *fixture) error {
			return f.CancelTransfer(f.ctx, f.node, TransferRow{Stream: f.ids[0], To: 2, LeaderEpoch: 1})
		}},
		{name: "PutInline", node: true, run: func(f *fixture) error { return f.PutInline(f.ctx, f.node, 1, []byte("segment")) }},
		{name: "Prepare", node: true, run: func(f *fixture) error { return f.Prepare(f.ctx, f.node, []string{"a", "b"}, epochTime) }},
		{name: "CommitPack", node: true, setup: packSetup, run: runPack},
		{name: "CommitPack in parts", node: true, setup: func(f *fixture) {
			packSetup(f)
			f.bounds.parts = 1
		}, run: runPack},
		{name: "Adopt", node: true, setup: func(f *fixture) {
			f.open(3)
			deadNode(f)
		}, run: runAdopt},
		{name: "Adopt in parts", node: true, setup: func(f *fixture) {
			f.open(3)
			deadNode(f)
			f.bounds.parts = 1
		}, run: runAdopt},
		{name: "SealWAL", node: true, setup: deadNode, run: func(f *fixture) error { return f.SealWAL(f.ctx, f.node, f.other, 1) }},
		{name: "FinishWAL", node: true, setup: closed, run: func(f *fixture) error { return f.FinishWAL(f.ctx, f.node, f.other) }},
		{name: "ForgetWAL", lease: true, setup: func(f *fixture) {
			closed(f)
			require.NoError(f.t, f.FinishWAL(f.ctx, f.node, f.other))
		}, run: func(f *fixture) error { return f.ForgetWAL(f.ctx, f.lease, f.other) }},
		{name: "MergeEntries", node: true, setup: func(f *fixture) {
			f.pack(0, 0, 10, "o1")
			f.pack(0, 10, 20, "o2")
			f.prepare("merged")
		}, run: func(f *fixture) error {
			s := f.ids[0]
			return f.MergeEntries(f.ctx, f.node, s, 1, []ObjectEntry{entry(s, 0, 10, "o1"), entry(s, 10, 20, "o2")}, entry(s, 0, 20, "merged"),
				ObjectMeta{Object: "merged", Size: 5, Kind: DataObject}, epochTime)
		}},
		{name: "ExpirePrepared", lease: true, setup: func(f *fixture) { f.prepare("a", "b") }, run: func(f *fixture) error {
			_, err := f.ExpirePrepared(f.ctx, f.lease, epochTime.Add(time.Second), 10)
			return err
		}},
		{name: "Destroyed", lease: true, setup: func(f *fixture) {
			f.prepare("a", "b")
			_, err := f.ExpirePrepared(f.ctx, f.lease, epochTime.Add(time.Second), 10)
			require.NoError(f.t, err)
		}, run: func(f *fixture) error {
			queue, err := f.DestroyQueue(f.ctx, 1, epochTime.Add(time.Second))
			if err != nil || len(queue) == 0 {
				return err
			}
			return f.Destroyed(f.ctx, f.lease, queue)
		}, counting: true},
		{name: "ForgetProducers", node: true, setup: func(f *fixture) {
			packSetup(f)
			require.NoError(f.t, runPack(f))
		}, run: func(f *fixture) error { return f.ForgetProducers(f.ctx, f.node, f.ids[0], 1, []int64{7, 99}) }},
		{name: "TrimLog", lease: true, run: func(f *fixture) error {
			records, err := f.ReadLog(f.ctx, LogRecord{}.Versionstamp, 2)
			if err != nil {
				return err
			}
			return f.TrimLog(f.ctx, f.lease, records[len(records)-1].Versionstamp)
		}, counting: true},
		{name: "RaiseFormat", run: func(f *fixture) error { return f.RaiseFormat(f.ctx, FormatVersion) }},
	}
}

func packSetup(f *fixture) {
	f.open(0)
	f.open(2)
	require.NoError(f.t, f.PutInline(f.ctx, f.node, 1, []byte("x")))
	require.NoError(f.t, f.PutInline(f.ctx, f.node, 4, []byte("x")))
	f.prepare("o1", "o2", "unused")
}

// runPack packs segments 1 to 3, of which 2 and 3 are objects and 3 is adopted.
func runPack(f *fixture) error {
	a, b := f.ids[0], f.ids[2]
	return f.CommitPack(f.ctx, Pack{
		Node: f.node, FirstLive: 1, Next: 4,
		Objects: []ObjectMeta{
			{Object: "o1", Size: 1, Kind: DataObject}, {Object: "o2", Size: 1, Kind: DataObject}, {Object: "unused", Size: 1, Kind: DataObject},
			{Object: "segment3", Size: 1, Kind: AdoptedSegment},
		},
		Entries: []ObjectEntry{
			entry(a, 0, 10, "o1"), entry(a, 10, 20, "o2"), entry(a, 20, 30, "segment3"), entry(b, 0, 5, "o1"), entry(999, 0, 5, "unused"),
		},
		Producers: []ProducerState{
			producer(a, 7, 0, ProducerBatch{FirstSeq: 0, LastSeq: 9, Base: 0, Last: 9}), producer(a, 8, 0, ProducerBatch{Base: 10, Last: 29}),
			producer(b, 7, 0, ProducerBatch{Base: 0, Last: 4}),
		},
		Segments: []string{"segment2", "segment3"}, At: epochTime,
	})
}

func runAdopt(f *fixture) error {
	a, b := f.ids[1], f.ids[3]
	return f.Adopt(f.ctx, f.node, Adoption{
		Dead: f.other, Seq: 1, Next: 2, Objects: []ObjectMeta{{Object: "segment1", Size: 9, Kind: AdoptedSegment}},
		Entries:   []ObjectEntry{entry(a, 0, 10, "segment1"), entry(b, 0, 5, "segment1"), entry(f.ids[0], 0, 5, "segment1")},
		Producers: []ProducerState{producer(a, 7, 0, ProducerBatch{Base: 0, Last: 9}), producer(b, 7, 0, ProducerBatch{Base: 0, Last: 4})},
		At:        epochTime,
	})
}

// Every command changes nothing more when it is called again, and changes the same once when answers of its commits are lost.
func TestCommandsAreSafeToRunTwice(t *testing.T) {
	for _, c := range commands() {
		t.Run(c.name, func(t *testing.T) {
			var dumps []map[string]string
			for _, answers := range []answers{plain, committed, lost} {
				f := newFixture(t)
				if c.setup != nil {
					c.setup(f)
				}
				before := f.dump()
				f.db.answers = answers
				f.db.runs.Store(0)
				require.NoError(t, c.run(f))
				require.Positive(t, f.db.runs.Load())
				f.db.answers = plain
				done := f.dump()
				if c.name != "RaiseFormat" {
					require.NotEqual(t, before, done, "the command did nothing")
				}
				f.healthy()
				dumps = append(dumps, done)
				if c.counting {
					continue
				}
				require.ErrorIs(t, c.run(f), c.again)
				require.Empty(t, difference(done, f.dump()), "called again")
			}
			require.Empty(t, difference(dumps[0], dumps[1]), "the commit happened, its answer was lost")
			require.Empty(t, difference(dumps[0], dumps[2]), "the commit was lost")
		})
	}
}

// Every command of a node is refused once it is fenced or replaced, and every coordinator command once the lease has moved on.
func TestCommandsOfTheDeadAreRefused(t *testing.T) {
	for _, c := range commands() {
		refused := func(want error, kill func(*fixture)) {
			f := newFixture(t)
			if c.setup != nil {
				c.setup(f)
			}
			kill(f)
			before := f.dump()
			require.ErrorIs(t, c.run(f), want)
			require.Empty(t, difference(before, f.dump()))
		}
		fence := func(f *fixture) { require.NoError(f.t, f.FenceSelf(f.ctx, f.node)) }
		replace := func(f *fixture) { f.register(1) }
		take := func(f *fixture) {
			seen, err := f.Lease(f.ctx, CoordinatorLease)
			require.NoError(f.t, err)
			by := f.register(4)
			_, err = f.AcquireLease(f.ctx, by, CoordinatorLease, seen)
			require.NoError(f.t, err)
		}
		release := func(f *fixture) { require.NoError(f.t, f.ReleaseLease(f.ctx, f.lease)) }
		t.Run(c.name, func(t *testing.T) {
			if c.node || c.lease {
				refused(ErrFenced, fence)
				refused(ErrReplaced, replace)
			}
			if c.lease {
				refused(ErrNotHolder, take)
				refused(ErrNotHolder, release)
			}
		})
	}
}

// A command that is added must be in the list above.
func TestCommandsListsAllCommands(t *testing.T) {
	listed := map[string]bool{}
	for _, c := range commands() {
		listed[c.name] = true
	}
	reads := map[string]bool{
		"AllocateIDs": true, // wastes ids when its answer is lost: see TestIDs
		"Check":       true, "Cluster": true, "EnsureFormat": true, "ConfirmFenced": true, "Counter": true, "DeadWALs": true, "DestroyQueue": true, "DurableEnd": true, "Format": true, "Heartbeats": true,
		"InlineSegments": true, "Inspect": true, "LastEntry": true, "Lease": true, "Loads": true, "LogHead": true, "Node": true, "Nodes": true, "ObjectEntries": true,
		"ObjectMeta": true, "Opened": true, "Owned": true, "Producers": true, "ReadLog": true, "Stream": true, "StreamOfBucket": true, "Streams": true,
		"Table": true, "TableByName": true, "Tables": true, "Transfers": true, "VerifyNode": true, "WAL": true, "WALs": true,
	}
	methods := reflect.TypeFor[*Store]()
	for i := range methods.NumMethod() {
		if name := methods.Method(i).Name; !reads[name] {
			require.True(t, listed[name], "%s is neither a read nor tested for being run twice", name)
		}
	}
}
