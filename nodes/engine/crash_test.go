package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/faults"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal/objects"
)

var errCrashed = errors.New("the node has crashed")

// crasher ends a life at the n-th step: steps are the moments before and after each write to the metadata and to the object store.
type crasher struct {
	mu      sync.Mutex
	left    int
	crashed chan struct{}
	what    string
	cancel  context.CancelFunc
}

// armCrash makes the world crash at step n. The context it returns ends then.
func (w *world) armCrash(ctx context.Context, n int) (*crasher, context.Context) {
	c := &crasher{left: n, crashed: make(chan struct{})}
	ctx, c.cancel = context.WithCancel(ctx)
	w.db.SetHooks(faults.Hooks{
		BeforeCommit: func(context.Context) error { return c.step("before a commit") },
		AfterCommit:  func(context.Context, kv.Commit) { _ = c.step("after a commit") },
	})
	writes := func(op string) bool { return op != objects.OpGet && op != objects.OpGetTail && op != objects.OpHead }
	w.store.Before(func(_ context.Context, op, key string) error {
		if writes(op) {
			return c.step("before " + op + " " + key)
		}
		return nil
	})
	w.store.After(func(_ context.Context, op, key string) error {
		if writes(op) {
			return c.step("after " + op + " " + key)
		}
		return nil
	})
	return c, ctx
}

func (c *crasher) step(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left > 0 {
		c.left--
		return nil
	}
	if c.what == "" {
		c.what = what
		close(c.crashed)
		c.cancel()
	}
	return errCrashed
}

func (c *crasher) happened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.what != ""
}

func (w *world) disarm() {
	w.db.SetHooks(faults.Hooks{})
	w.store.Before(nil)
	w.store.After(nil)
}

// ledger is what a client of one stream knows: it appends by one idempotent producer, one record a batch.
type ledger struct {
	id    int64
	sent  [][]byte // by sequence
	acked []int64  // offset by sequence; -1 while it is not acknowledged
	start int64    // acknowledged trim
	large int      // bytes of every second record
}

// send appends the record of the next sequence.
func (l *ledger) send(ctx context.Context, s *Stream) error {
	size := 40
	if len(l.sent)%2 == 1 {
		size = max(size, l.large)
	}
	v := value(s.ID(), uint64(len(l.sent)), size)
	l.sent = append(l.sent, v)
	l.acked = append(l.acked, -1)
	return l.resend(ctx, s, len(l.sent)-1)
}

func (l *ledger) resend(ctx context.Context, s *Stream, seq int) error {
	p := &batch.Producer{ID: l.id, BaseSequence: int32(seq)}
	r, err := s.Append(ctx, Append{Batches: []batch.Batch{build(1000+int64(seq), p, l.sent[seq])}})
	if err != nil {
		return err
	}
	if l.acked[seq] >= 0 && l.acked[seq] != r.Base {
		return fmt.Errorf("sequence %d was acknowledged at offset %d and now at %d", seq, l.acked[seq], r.Base)
	}
	l.acked[seq] = r.Base
	return nil
}

// verify compares the stream after a restart with what was acknowledged, lets the client retry what is open, and verifies again that
// every record is there once.
func (l *ledger) verify(t *testing.T, s *Stream) {
	t.Helper()
	l.verifyAcked(t, s)
	for seq := max(0, len(l.sent)-5); seq < len(l.sent); seq++ {
		require.NoError(t, l.resend(t.Context(), s, seq), "retry of sequence %d", seq)
	}
	l.verifyAcked(t, s)
	seen := map[string]int64{}
	start := s.Start()
	values, err := readValues(t.Context(), s, start, 1<<20)
	require.NoError(t, err)
	for i, v := range values {
		offset := start + int64(i)
		if before, twice := seen[string(v)]; twice {
			t.Fatalf("the record at offset %d is also at %d", before, offset)
		}
		seen[string(v)] = offset
	}
	require.NoError(t, l.send(t.Context(), s))
}

func (l *ledger) verifyAcked(t *testing.T, s *Stream) {
	t.Helper()
	start := s.Start()
	require.GreaterOrEqual(t, start, l.start)
	values, err := readValues(t.Context(), s, start, 1<<20)
	require.NoError(t, err)
	for seq, offset := range l.acked {
		if offset < start {
			continue
		}
		require.Less(t, offset-start, int64(len(values)), "the acknowledged record at offset %d is lost", offset)
		require.Equal(t, l.sent[seq], values[offset-start], "offset %d", offset)
	}
}

// crashWork does one of everything that writes.
func crashWork(ctx context.Context, l *life, a, b *ledger) error {
	sa, sb := l.streams[0], l.streams[1]
	send := func(n int) error {
		for range n {
			if err := errors.Join(a.send(ctx, sa), b.send(ctx, sb)); err != nil {
				return err
			}
		}
		return nil
	}
	packed := func() error {
		return errors.Join(sa.awaitPacked(ctx, sa.End()), sb.awaitPacked(ctx, sb.End()))
	}
	trim := func() error {
		start, err := sa.Trim(ctx, 4)
		a.start = max(a.start, start)
		return err
	}
	closeB := func() error {
		if err := l.engine.Close(ctx, sb); err != nil {
			return err
		}
		return l.w.layer.CloseStream(ctx, l.ref, sb.ID(), sb.Epoch())
	}
	for _, step := range []func() error{
		func() error { return send(2) }, packed, func() error { return send(3) }, packed, func() error { return send(1) }, trim,
		func() error { return l.engine.mergeAll(ctx) }, func() error { return send(3) }, closeB, func() error { return a.send(ctx, sa) },
		func() error { return sa.expireProducers(ctx, time.Now().Add(-time.Hour)) },
	} {
		if err := step(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// A crash before or after any write loses nothing that was acknowledged, gives no record twice and refuses no retry.
func TestCrashAtEveryStep(t *testing.T) {
	for _, placement := range []crashPlacement{
		{name: "inline", adopt: 1 << 20},
		{name: "objects, copied", inline: -1, adopt: 1 << 20},
		{name: "objects, adopted", inline: -1, adopt: 1},
		{name: "small ones inline, objects of one stream adopted and of the other copied", inline: 400, adopt: 550},
		{name: "small ones inline, closed with the others", inline: 400, adopt: 550, alone: time.Hour},
	} {
		t.Run(placement.name, func(t *testing.T) {
			for n := 0; ; n++ {
				if done := crashAt(t, n, placement); done {
					t.Logf("the work has %d steps", n)
					require.Greater(t, n, 30)
					return
				}
			}
		})
	}
}

// crashPlacement is where the records of crashWork go.
type crashPlacement struct {
	name   string
	inline int // as in wal.Options
	adopt  int64
	alone  time.Duration
}

// crashAt crashes at step n and verifies; true when the work was done before.
func crashAt(t *testing.T, n int, placement crashPlacement) bool {
	w := newWorld(t, 2)
	w.wal.InlineMax = placement.inline
	w.alone = placement.alone
	w.options.PackAdoptBytes = placement.adopt
	w.options.MergeRun = 2
	l := w.start()
	a, b := &ledger{id: 1, large: 600}, &ledger{id: 2, large: 300}
	c, ctx := w.armCrash(t.Context(), n)
	defer c.cancel()
	err := crashWork(ctx, l, a, b)
	done := !c.happened()
	if done {
		require.NoError(t, err)
	}
	l.crash()
	w.disarm()
	l = w.start()
	defer l.crash()
	if !t.Run(fmt.Sprintf("step %d", n), func(t *testing.T) {
		t.Logf("crashed %s: %v", c.what, err)
		a.verify(t, l.streams[0])
		b.verify(t, l.streams[1])
		l.pack()
		a.verifyAcked(t, l.streams[0])
		b.verifyAcked(t, l.streams[1])
		w.check(t)
	}) {
		t.FailNow()
	}
	return done
}

// check asks the layer whether its rows agree with each other, and looks that every object that an entry names is there.
func (w *world) check(t *testing.T) {
	t.Helper()
	require.NoError(t, w.layer.Check(t.Context(), func(p layer.Problem) { t.Errorf("metadata: %+v", p) }))
	for _, id := range w.ids {
		entries, err := w.layer.ObjectEntries(t.Context(), id, 0, 1000)
		require.NoError(t, err)
		for _, entry := range entries {
			_, ok := w.store.Body(entry.Object)
			require.True(t, ok, "object %s of stream %d", entry.Object, id)
		}
	}
}
