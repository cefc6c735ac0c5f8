package embedded

import (
	"bytes"
	"sync"

	"github.com/varvedb/varve/layer/embedded/internal/watching"
	"github.com/varvedb/varve/layer/kv"
)

// watch is a watch on a key and what the engine knows of it.
type watch struct {
	*watching.Watch
	seen []byte // value that the transaction saw; nil: absent
}

func newWatch(ws *watches, key []byte) *watch {
	w := &watch{}
	w.Watch = watching.New(key, func() { ws.remove(w) })
	return w
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
		w.Finish(kv.ErrClosed)
		return
	}
	set := ws.byKey[string(w.Key())]
	if set == nil {
		set = map[*watch]struct{}{}
		ws.byKey[string(w.Key())] = set
	}
	set[w] = struct{}{}
}

func (ws *watches) remove(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	set := ws.byKey[string(w.Key())]
	delete(set, w)
	if len(set) == 0 {
		delete(ws.byKey, string(w.Key()))
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
			w.Finish(kv.ErrClosed)
		}
	}
	clear(ws.byKey)
}

// check fires w if its key has another value in v than its transaction saw.
func (ws *watches) check(w *watch, v *view) {
	value, err := v.get(w.Key())
	if err == nil && (value == nil) == (w.seen == nil) && bytes.Equal(value, w.seen) {
		return
	}
	ws.remove(w)
	w.Finish(err)
}

func (t *transaction) Watch(key []byte) kv.Watch {
	w := newWatch(t.db.watches, key)
	err := t.read(func() (err error) {
		if w.seen, err = t.lookup(key, t.readOnly); err == nil {
			t.watches = append(t.watches, w)
		}
		return err
	})
	if err != nil {
		w.Finish(err)
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
		t.db.watches.check(w, v)
	}
	return t.db.views.release(v)
}

// dropWatches ends the watches of a transaction that was not committed, or may not have been.
func (t *transaction) dropWatches(err error) {
	for _, w := range t.watches {
		w.NotCommitted(err)
	}
}
