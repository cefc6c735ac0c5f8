package embedded

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varvedb/varve/layer/kv"
)

const (
	// queueSize is how many commits may wait for the sequencer before more of them block.
	queueSize = 1024
	// maxGroup bounds a group of commits that share one sync: transactions, and bytes of mutations.
	maxGroup      = 1024
	maxGroupBytes = 4 << 20
)

// committer commits transactions in groups, in two steps with a goroutine each. The sequencer takes what is waiting, checks it against
// the resolver, gives versions and applies one batch; the syncer waits until that batch is on disk, publishes its version and answers. So while one
// group is being synced the next one gathers, and a commit waits for about one sync.
type committer struct {
	db        *pebble.DB
	views     *views
	watches   *watches
	now       func() time.Time
	log       *slog.Logger
	durable   bool // sync to disk
	maxWrites int  // that the resolver remembers

	queue  chan *commitRequest
	synced chan *group
	broken atomic.Pointer[error] // the log cannot be written any more
	failed chan struct{}         // closed when broken is set
	done   sync.WaitGroup

	// Of the sequencer goroutine.
	resolver *resolver
	version  int64
}

// group is a number of transactions that are made durable by one sync.
type group struct {
	requests []*commitRequest
	batch    *pebble.Batch // nil when none of them commits
	view     *view         // the rows after batch
	written  []keyRange
	bytes    int  // of mutations
	reading  bool // some mutation reads what is stored
}

func (c *committer) start() {
	c.run("embedded-sequencer", c.sequence)
	c.run("embedded-syncer", c.sync)
}

// run starts a goroutine that stop waits for. It ends with the queue, not with a context; this one only carries the label.
func (c *committer) run(name string, do func()) {
	c.done.Go(func() {
		pprof.Do(context.Background(), pprof.Labels("goroutine", name), func(context.Context) { do() })
	})
}

// stop waits for what is queued. Nobody may submit any more.
func (c *committer) stop() {
	close(c.queue)
	c.done.Wait()
}

// sequence is the sequencer: it orders transactions until the queue is closed.
func (c *committer) sequence() {
	defer close(c.synced)
	for r := range c.queue {
		g := &group{}
		g.take(r)
		c.gather(g)
		for _, r := range g.requests {
			c.add(g, r)
		}
		c.apply(g)
		c.synced <- g
		c.resolver.forget(c.now().Add(-maxAge), c.maxWrites)
	}
}

// take adds r to the group unless its transaction has given up.
func (g *group) take(r *commitRequest) {
	if r.take() {
		g.requests = append(g.requests, r)
		g.bytes += r.bytes
		g.reading = g.reading || r.reading
	}
}

// gather adds what is waiting to the group.
func (c *committer) gather(g *group) {
	for len(g.requests) < maxGroup && g.bytes < maxGroupBytes {
		select {
		case r, ok := <-c.queue:
			if !ok {
				return
			}
			g.take(r)
		default:
			return
		}
	}
}

// add decides about one transaction, and puts it into the batch of the group if it commits.
func (c *committer) add(g *group, r *commitRequest) {
	if broken := c.broken.Load(); broken != nil {
		r.err = *broken
		return
	}
	if r.err = c.check(r); r.err != nil {
		return
	}
	c.version++
	r.commit = kv.Commit{Version: c.version, Versionstamp: stampOf(c.version)}
	if g.batch == nil {
		g.batch = c.newBatch(g)
	}
	if r.err = c.write(g, r); r.err != nil {
		// The batch holds half a transaction, and it cannot be taken back.
		c.breakDown(fmt.Errorf("write batch: %w", r.err))
	}
}

// newBatch makes a batch that can be read if the mutations of the group need that.
func (c *committer) newBatch(g *group) *pebble.Batch {
	if g.reading {
		return c.db.NewIndexedBatch()
	}
	return c.db.NewBatch()
}

// check tells why r cannot be committed: it read at a version that is too old, or something that it read was written since.
func (c *committer) check(r *commitRequest) error {
	if len(r.reads) == 0 {
		return nil
	}
	if age := c.now().Sub(r.since); age > maxAge {
		return fmt.Errorf("read version %d is %s old at commit: %w", r.readVersion, age, kv.ErrTooOld)
	}
	if r.readVersion < c.resolver.floor {
		return fmt.Errorf("read version %d is before %d, the oldest that can be checked: %w", r.readVersion, c.resolver.floor, kv.ErrTooOld)
	}
	for _, rng := range r.reads {
		if c.resolver.changed(rng, r.readVersion) {
			return fmt.Errorf("keys from %x to %x were written after version %d: %w", rng.begin, rng.end, r.readVersion, kv.ErrConflict)
		}
	}
	return nil
}

// write puts the mutations of r into the batch and its write conflict ranges into the resolver.
func (c *committer) write(g *group, r *commitRequest) error {
	now := c.now()
	wrote := func(rng keyRange) {
		c.resolver.wrote(rng, r.commit.Version, now)
		g.written = append(g.written, rng)
	}
	for _, rng := range r.writes {
		wrote(rng)
	}
	for _, m := range r.mutations {
		key, value := m.stamped(r.commit.Versionstamp)
		if m.kind == mutationClearRange {
			wrote(keyRange{key, value})
		} else {
			wrote(pointRange(key))
		}
		if err := m.apply(g.batch, key, value); err != nil {
			return err
		}
	}
	return nil
}

func (m mutation) apply(batch *pebble.Batch, key, value []byte) error {
	switch m.kind {
	case mutationClear:
		return batch.Delete(rowKey(key), nil)
	case mutationClearRange:
		return batch.DeleteRange(rowKey(key), rowKey(value), nil)
	case mutationAdd:
		// The batch sees what earlier transactions of the group and earlier groups did.
		existing, err := getRow(batch, key)
		if err != nil {
			return err
		}
		value = add(existing, value)
	}
	return batch.Set(rowKey(key), value, nil)
}

// apply writes the batch of the group, without waiting for the disk, and takes the view that has exactly what was committed so far.
func (c *committer) apply(g *group) {
	if g.batch == nil || c.broken.Load() != nil {
		return
	}
	err := g.batch.Set(versionKey, binary.BigEndian.AppendUint64(nil, uint64(c.version)), nil)
	switch {
	case err != nil:
	case c.durable:
		err = c.db.ApplyNoSyncWait(g.batch, pebble.Sync)
	default:
		err = c.db.Apply(g.batch, pebble.NoSync)
	}
	if err != nil {
		c.breakDown(fmt.Errorf("apply batch: %w", err))
		return
	}
	g.view = &view{version: c.version, snapshot: c.db.NewSnapshot()}
}

// sync is the syncer: it makes groups durable, in order, and answers their transactions.
func (c *committer) sync() {
	for g := range c.synced {
		c.finish(g)
		for _, r := range g.requests {
			close(r.done)
		}
	}
}

// finish waits for the batch of the group and publishes it. No transaction may see a version that a crash could take back.
func (c *committer) finish(g *group) {
	if g.batch == nil {
		return
	}
	var err error
	if g.view != nil && c.durable {
		if err = g.batch.SyncWait(); err != nil {
			c.breakDown(fmt.Errorf("sync: %w", err))
		}
	}
	if broken := c.broken.Load(); broken != nil && (g.view == nil || err != nil) {
		c.fail(g, *broken)
		return
	}
	if err := g.batch.Close(); err != nil {
		c.log.Warn("close batch", "error", err)
	}
	v := g.view
	if err := c.views.publish(v); err != nil {
		c.log.Warn("publish view", "error", err)
	}
	for _, w := range c.watches.on(g.written) {
		c.watches.check(w, v)
	}
}

// fail tells the transactions of a group that their outcome is open.
func (c *committer) fail(g *group, cause error) {
	if g.view != nil {
		if err := g.view.snapshot.Close(); err != nil {
			c.log.Warn("close snapshot", "error", err)
		}
	}
	for _, r := range g.requests {
		if r.err == nil {
			r.commit, r.err = kv.Commit{}, fmt.Errorf("%w: %w", kv.ErrCommitUnknown, cause)
		}
	}
}

// breakDown refuses every commit from now on: what a failed sync left on the disk is known only after a restart.
func (c *committer) breakDown(cause error) {
	err := fmt.Errorf("embedded engine can write no more and must be opened again: %w: %w", kv.ErrClosed, cause)
	if c.broken.CompareAndSwap(nil, &err) {
		close(c.failed)
		c.log.Error("embedded engine failed", "error", cause)
	}
}
