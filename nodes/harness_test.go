package nodes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kvtest"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// gate holds up what passes through it while it is shut: a process that is paused, or a database that cannot be reached.
type gate struct {
	mu    sync.Mutex
	shut  chan struct{} // nil: open; closed when it opens
	delay time.Duration // of each call that passes
}

func (g *gate) slow(delay time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = delay
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		shut, delay := g.shut, g.delay
		g.mu.Unlock()
		if shut == nil && delay == 0 {
			return nil
		}
		if shut == nil {
			sleep(ctx, delay)
			return nil
		}
		select {
		case <-shut:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", kv.ErrUnavailable, ctx.Err())
		}
	}
}

// gatedDB is a database behind gates.
type gatedDB struct {
	kv.Database
	gates []*gate
}

func (d gatedDB) pass(ctx context.Context) error {
	for _, g := range d.gates {
		if err := g.pass(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d gatedDB) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	if err := d.pass(ctx); err != nil {
		return kv.Commit{}, err
	}
	return d.Database.Transact(ctx, fn)
}

func (d gatedDB) ReadTransact(ctx context.Context, fn func(kv.ReadTransaction) error) error {
	if err := d.pass(ctx); err != nil {
		return err
	}
	return d.Database.ReadTransact(ctx, fn)
}

// gatedStore is an object store behind a gate.
type gatedStore struct {
	objects.Store
	gate *gate
}

func (s gatedStore) Put(ctx context.Context, key string, body []byte) error {
	if err := s.gate.pass(ctx); err != nil {
		return err
	}
	return s.Store.Put(ctx, key, body)
}

func (s gatedStore) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	if err := s.gate.pass(ctx); err != nil {
		return err
	}
	return s.Store.PutIfAbsent(ctx, key, body)
}

func (s gatedStore) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := s.gate.pass(ctx); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key, offset, length)
}

// cluster is several nodes in one process over one database and one object store.
type cluster struct {
	t        testing.TB
	db       kv.Database
	metadata *gate // shut: the database cannot be reached by anybody
	store    *objectstest.Fake
	options  Options
	logger   *slog.Logger

	mu      sync.Mutex
	members map[int64]*member // the newest life of each node
	all     []*member
}

// member is one life of a node: a process.
type member struct {
	*Node
	pause *gate // shut: the process is paused, its database and object store calls hang
}

// quick are options by which a failover takes a second.
func quick() Options {
	o := DefaultOptions()
	o.HeartbeatInterval = 50 * time.Millisecond
	o.NodeTimeout = 500 * time.Millisecond
	o.LeaseTTL = 400 * time.Millisecond
	o.DetectorInterval = 20 * time.Millisecond
	o.CoordinatorTick = 100 * time.Millisecond
	o.LifecycleInterval = 100 * time.Millisecond
	o.SyncInterval = 200 * time.Millisecond
	o.SweepInterval = 200 * time.Millisecond
	o.DestroyGrace = 100 * time.Millisecond
	o.OpenWait = 2 * time.Second
	o.WAL.InlineTimeout = 300 * time.Millisecond
	o.WAL.PutTimeout = time.Second
	o.WAL.VerifyTimeout = 100 * time.Millisecond
	o.WAL.RetryMax = 200 * time.Millisecond
	o.Engine.PackInterval = 200 * time.Millisecond
	o.Engine.BlockCacheBytes = 8 << 20
	o.Engine.IndexCacheBytes = 1 << 20
	o.Engine.ReadaheadBytes = 4 << 20
	return o
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	db := kvtest.Open(t)
	var out io.Writer = testWriter{t}
	level := slog.LevelInfo
	if os.Getenv("VARVE_TEST_LOG") == "debug" {
		level = slog.LevelDebug
	}
	c := &cluster{
		t: t, db: db, metadata: &gate{}, store: objectstest.NewFake(), options: quick(), members: map[int64]*member{},
		logger: slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level})),
	}
	t.Cleanup(func() {
		c.metadata.open()
		c.store.SetOutage(false)
		for _, m := range c.all {
			m.pause.open()
			m.abandon()
		}
	})
	return c
}

// testWriter shows the log of a test that fails.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Helper()
	w.t.Logf("%s %s", time.Now().Format("05.000"), p[:len(p)-1])
	return len(p), nil
}

// launch starts the next life of a node.
func (c *cluster) launch(id int64, change ...func(*Options)) *member {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	options := c.options
	options.NodeID = id
	options.AdvertisedKafka = fmt.Sprintf("node-%d:9092", id)
	for _, f := range change {
		f(&options)
	}
	pause := &gate{}
	meta, err := layer.Open(ctx, gatedDB{c.db, []*gate{c.metadata, pause}}, "test")
	require.NoError(c.t, err)
	node, err := New(options, meta, gatedStore{c.store, pause}, c.logger, NewMetrics(nil))
	require.NoError(c.t, err)
	m := &member{node, pause}
	c.mu.Lock()
	c.members[id] = m
	c.all = append(c.all, m)
	c.mu.Unlock()
	require.NoError(c.t, node.Start(ctx))
	return m
}

// start is launch that waits until the node runs.
func (c *cluster) start(id int64, change ...func(*Options)) *member {
	c.t.Helper()
	m := c.launch(id, change...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(c.t, m.AwaitReady(ctx))
	return m
}

// startAll starts nodes 1 to n; node 1 holds the lease.
func (c *cluster) startAll(n int64) []*member {
	c.t.Helper()
	var list []*member
	for id := int64(1); id <= n; id++ {
		m := c.start(id)
		if id == 1 {
			c.eventually("node 1 has the lease", func() bool { return m.tenure.Load() != nil })
		}
		list = append(list, m)
	}
	for _, m := range list {
		c.eventually("every node sees all", func() bool { return int64(len(m.LiveNodes())) == n })
	}
	return list
}

// abandon is the death of a process: nothing is closed, flushed or fenced.
func (m *member) abandon() {
	if m.built.Load() {
		m.cancel() // first, so that the sync task finds nothing to close
	}
	if m.life.advance(StateFailed, fmt.Errorf("abandoned by the test")) {
		if m.built.Load() {
			m.bury()
		}
		m.life.finish()
	}
	<-m.life.done
}

func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: not after %v", what, patience)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// alive lists the newest lives of nodes that serve.
func (c *cluster) alive() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*member
	for id := int64(1); id <= int64(len(c.members))+8; id++ {
		if m := c.members[id]; m != nil && m.State() <= StateRunning {
			list = append(list, m)
		}
	}
	return list
}

func (c *cluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	return ctx
}
