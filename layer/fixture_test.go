package layer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kvtest"
)

var epochTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// testUUID is a fixed id per number.
func testUUID(n int) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, n)) }

// answers says what a database does to the commits of commands.
type answers int

const (
	plain     answers = iota
	committed         // each commit happens, its answer is lost, and the decision runs again
	lost              // each first commit does not happen, and the decision runs again
)

// forgetful is a database that loses the answers of commits.
type forgetful struct {
	kv.Database
	answers answers
	runs    atomic.Int64 // of decisions
}

var errLost = errors.New("lost")

func (f *forgetful) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	counted := func(tr kv.Transaction) error {
		f.runs.Add(1)
		return fn(tr)
	}
	switch f.answers {
	case committed:
		if commit, err := f.Database.Transact(ctx, counted); err != nil {
			return commit, err
		}
	case lost:
		_, err := f.Database.Transact(ctx, func(tr kv.Transaction) error {
			if err := counted(tr); err != nil {
				return err
			}
			return errLost
		})
		if !errors.Is(err, errLost) {
			return kv.Commit{}, err
		}
	}
	return f.Database.Transact(ctx, counted)
}

// fixture is a small cluster: nodes 1 and 2, of which 1 holds the lease, and a table "t" of four streams led by 1, 2, 1, 2.
type fixture struct {
	*Store
	t     testing.TB
	db    *forgetful
	ctx   context.Context
	node  NodeRef
	other NodeRef
	lease LeaseRef
	table TableRow
	ids   []int64 // of streams
	seqs  int     // request ids given out
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return newFixtureOn(t, kvtest.Open(t))
}

func newFixtureOn(t testing.TB, db kv.Database) *fixture {
	t.Helper()
	f := &fixture{t: t, db: &forgetful{Database: db}, ctx: t.Context()}
	var err error
	f.Store, err = Open(f.ctx, f.db, "test", WithClock(func() time.Time { return epochTime }))
	require.NoError(t, err)
	f.node, f.other = f.register(1), f.register(2)
	lease, err := f.AcquireLease(f.ctx, f.node, CoordinatorLease, LeaseRow{})
	require.NoError(t, err)
	f.lease = lease.Ref()
	f.table = f.createTable("t", 1, 2, 1, 2)
	streams, err := f.Streams(f.ctx, f.table.ID)
	require.NoError(t, err)
	for _, s := range streams {
		f.ids = append(f.ids, s.ID)
	}
	return f
}

func (f *fixture) request() uuid.UUID {
	f.seqs++
	return testUUID(f.seqs)
}

func (f *fixture) register(id int64) NodeRef {
	f.t.Helper()
	row, _, err := f.RegisterNode(f.ctx, NodeInfo{ID: id, Kafka: "a:1", Slots: 1}, FenceBoth, f.request(), f.request(), epochTime)
	require.NoError(f.t, err)
	return row.Ref()
}

func (f *fixture) createTable(table string, leaders ...int64) TableRow {
	f.t.Helper()
	row, _, err := f.CreateTable(f.ctx, f.node, CreateTable{
		Name: table, UUID: f.request(), Kind: LogTable, Buckets: len(leaders), Leaders: leaders, RequestID: f.request(), At: epochTime,
	})
	require.NoError(f.t, err)
	return row
}

// open opens stream i of the table by its leader.
func (f *fixture) open(i int) StreamRow {
	f.t.Helper()
	row, err := f.Stream(f.ctx, f.ids[i])
	require.NoError(f.t, err)
	by := f.node
	if row.Leader == f.other.ID {
		by = f.other
	}
	row, err = f.OpenStream(f.ctx, by, row.ID, row.LeaderEpoch)
	require.NoError(f.t, err)
	return row
}

func (f *fixture) prepare(objects ...string) []ObjectMeta {
	f.t.Helper()
	require.NoError(f.t, f.Prepare(f.ctx, f.node, objects, epochTime))
	metas := make([]ObjectMeta, len(objects))
	for i, o := range objects {
		metas[i] = ObjectMeta{Object: o, Size: 1000, Kind: DataObject}
	}
	return metas
}

func entry(stream, base, end int64, object string) ObjectEntry {
	return ObjectEntry{Stream: stream, Base: base, End: end, Object: object, Pos: 10, Len: 20, IndexPos: 30, IndexLen: 40, MaxTimestamp: 50, Records: end - base}
}

func producer(stream, id, epoch int64, batches ...ProducerBatch) ProducerState {
	return ProducerState{Stream: stream, Producer: id, Epoch: epoch, LastTimestamp: 5, Batches: batches}
}

// pack commits [base, end) of stream i as one pack of one segment from the node, in a new object.
func (f *fixture) pack(i int, base, end int64, object string) {
	f.t.Helper()
	f.open1(i)
	wal, err := f.WAL(f.ctx, f.node)
	require.NoError(f.t, err)
	require.NoError(f.t, f.CommitPack(f.ctx, Pack{
		Node: f.node, FirstLive: wal.FirstLive, Next: wal.FirstLive + 1, Objects: f.prepare(object),
		Entries: []ObjectEntry{entry(f.ids[i], base, end, object)}, At: epochTime,
	}))
}

// open1 opens stream i if it is closed.
func (f *fixture) open1(i int) {
	f.t.Helper()
	if row, err := f.Stream(f.ctx, f.ids[i]); err == nil && row.State == StreamClosed {
		f.open(i)
	}
}

// dump is all rows but those that name versions: those of the log and of the destroy queue are listed by order.
func (f *fixture) dump() map[string]string {
	f.t.Helper()
	rows, order := map[string]string{}, 0
	require.NoError(f.t, f.Inspect(f.ctx, InspectOptions{}, func(r InspectRow) error {
		require.NoError(f.t, r.Err, "%v", r.Key)
		key := r.Key.String()
		switch r.Keyspace {
		case spaceLogHead, spaceLogTrimmed:
			return nil
		case spaceLog, spaceDestroy:
			order++
			key = fmt.Sprintf("%s %d", r.Keyspace, order)
		}
		rows[key] = r.Value
		if r.Keyspace == spaceInline {
			rows[key] = string(r.Raw.Value)
		}
		return nil
	}))
	return rows
}

// count is how many rows a keyspace has.
func (f *fixture) count(space string) (n int) {
	f.t.Helper()
	require.NoError(f.t, f.Inspect(f.ctx, InspectOptions{Keyspace: space}, func(r InspectRow) error {
		if r.Keyspace == space { // not one whose name begins so
			n++
		}
		return nil
	}))
	return n
}

// doomed lists the objects in the destroy queue.
func (f *fixture) doomed() []string {
	f.t.Helper()
	queue, err := f.DestroyQueue(f.ctx, 1000, epochTime.Add(time.Hour))
	require.NoError(f.t, err)
	var out []string
	for _, d := range queue {
		out = append(out, d.Object)
	}
	return out
}

// healthy fails the test on any problem.
func (f *fixture) healthy() {
	f.t.Helper()
	var problems []string
	require.NoError(f.t, f.Check(f.ctx, func(p Problem) { problems = append(problems, p.String()) }))
	require.Empty(f.t, problems)
}

// difference tells the difference of two dumps.
func difference(a, b map[string]string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if b[key] != a[key] {
			out = append(out, fmt.Sprintf("%s: %s became %s", key, a[key], b[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[key]; !ok {
			out = append(out, fmt.Sprintf("%s: is new: %s", key, b[key]))
		}
	}
	return out
}

var errCrash = errors.New("crash")

// failing is a database whose commands fail after some more of them, as when a process dies; once.
type failing struct {
	kv.Database
	left  int
	done  bool
	armed bool
}

func (f *failing) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	if f.left == 0 && (!f.done || f.armed) {
		f.done, f.armed = true, false
		return kv.Commit{}, errCrash
	}
	f.left--
	return f.Database.Transact(ctx, fn)
}
