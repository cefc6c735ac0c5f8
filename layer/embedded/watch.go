package embedded

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/varvedb/varve/layer/kv"
)

// watch is one watch on a key. It is told once, by closing done.
type watch struct {
	watches *watches
	key     string
	seen    []byte // value that the transaction saw; nil: absent

	done chan struct{}
	once sync.Once
	err  error // why it will not fire; set before done is closed
}

// finish ends the watch: err is nil when it fired.
func (w *watch) finish(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.done)
	})
}

func (w *watch) Wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		w.Cancel()
		return fmt.Errorf("watch given up: %w", ctx.Err())
	}
}

func (w *watch) Cancel() {
	w.watches.remove(w)
	w.finish(fmt.Errorf("watch on key %x cancelled: %w", w.key, context.Canceled))
}

// watches are the watches whose transactions have committed.
type watches struct {
	mu     sync.Mutex
	byKey  map[string]map[*watch]struct{}
	closed bool
}

func newWatches() *watches {
	return &watches{byKey: map[string]map[*watch]struct{}{}}
}

// add starts w. The caller then compares what w saw with a view taken after add, since changes before add tell nobody.
func (ws *watches) add(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		w.finish(fmt.Errorf("watch on key %x: %w", w.key, kv.ErrClosed))
		return
	}
	set := ws.byKey[w.key]
	if set == nil {
		set = map[*watch]struct{}{}
		ws.byKey[w.key] = set
	}
	set[w] = struct{}{}
}

func (ws *watches) remove(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	set := ws.byKey[w.key]
	delete(set, w)
	if len(set) == 0 {
		delete(ws.byKey, w.key)
	}
}

// on gives the watches on keys in the written ranges.
func (ws *watches) on(written []keyRange) []*watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.byKey) == 0 {
		return nil
	}
	var hit []*watch
	collect := func(set map[*watch]struct{}) {
		for w := range set {
			hit = append(hit, w)
		}
	}
	for _, rng := range written {
		if isPoint(rng) {
			collect(ws.byKey[string(rng.begin)])
			continue
		}
		for key, set := range ws.byKey {
			if string(rng.begin) <= key && key < string(rng.end) {
				collect(set)
			}
		}
	}
	return hit
}

// isPoint tells whether rng holds one key.
func isPoint(rng keyRange) bool {
	n := len(rng.begin)
	return len(rng.end) == n+1 && rng.end[n] == 0 && bytes.Equal(rng.begin, rng.end[:n])
}

// close ends every watch.
func (ws *watches) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for _, set := range ws.byKey {
		for w := range set {
			w.finish(fmt.Errorf("watch on key %x: %w", w.key, kv.ErrClosed))
		}
	}
	clear(ws.byKey)
}

// check fires w if its key has another value in v than its transaction saw.
func (w *watch) check(v *view) {
	value, err := v.get([]byte(w.key))
	if err == nil && (value == nil) == (w.seen == nil) && bytes.Equal(value, w.seen) {
		return
	}
	w.watches.remove(w)
	w.finish(err)
}

func (t *transaction) Watch(key []byte) kv.Watch {
	w := &watch{watches: t.db.watches, key: string(key), done: make(chan struct{})}
	err := t.read(func() (err error) {
		if w.seen, err = t.lookup(key, t.readOnly); err == nil {
			t.watches = append(t.watches, w)
		}
		return err
	})
	if err != nil {
		w.finish(err)
	}
	return w
}

// startWatches starts the watches of a transaction that was committed.
func (t *transaction) startWatches() error {
	if len(t.watches) == 0 {
		return nil
	}
	for _, w := range t.watches {
		t.db.watches.add(w)
	}
	v := t.db.views.acquire()
	for _, w := range t.watches {
		w.check(v)
	}
	return t.db.views.release(v)
}

// dropWatches ends the watches of a transaction that was not committed, or may not have been.
func (t *transaction) dropWatches(err error) {
	for _, w := range t.watches {
		w.finish(fmt.Errorf("transaction of the watch on key %x not committed: %w", w.key, err))
	}
}
