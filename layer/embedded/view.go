package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// view is the rows as of one version, shared by every transaction that reads at it.
type view struct {
	version  int64
	snapshot *pebble.Snapshot
	refs     int // guarded by views.mu
}

// views hands out the newest durable view and closes each when nobody reads it any more.
type views struct {
	mu      sync.Mutex
	current *view
	open    map[*view]struct{}
}

func newViews(first *view) *views {
	first.refs = 1
	return &views{current: first, open: map[*view]struct{}{first: {}}}
}

// acquire gives the newest view. The caller releases it.
func (v *views) acquire() *view {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.current.refs++
	return v.current
}

// publish makes next the view that transactions get from now on.
func (v *views) publish(next *view) error {
	v.mu.Lock()
	last := v.current
	next.refs = 1
	v.current = next
	v.open[next] = struct{}{}
	v.mu.Unlock()
	return v.release(last)
}

func (v *views) release(w *view) error {
	v.mu.Lock()
	w.refs--
	_, open := v.open[w]
	last := w.refs == 0 && open
	if last {
		delete(v.open, w)
	}
	v.mu.Unlock()
	if !last {
		return nil
	}
	if err := w.snapshot.Close(); err != nil {
		return fmt.Errorf("release the view of version %d: %w", w.version, err)
	}
	return nil
}

// close closes every view, whoever still holds one: reads must have ended and no new ones may come.
func (v *views) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var errs []error
	for w := range v.open {
		errs = append(errs, w.snapshot.Close())
	}
	clear(v.open)
	return errors.Join(errs...)
}

// Rows of the key space of callers and of the engine are told apart in Pebble by the first byte.
const (
	spaceEngine = 0x00
	spaceRows   = 0x01
)

// versionKey holds the newest commit version, 8 bytes big endian. Every batch writes it.
var versionKey = []byte{spaceEngine, 'v'}

func rowKey(key []byte) []byte {
	out := make([]byte, 1+len(key))
	out[0] = spaceRows
	copy(out[1:], key)
	return out
}

// get reads one row; nil when it is absent.
func (v *view) get(key []byte) ([]byte, error) {
	return getRow(v.snapshot, key)
}

func getRow(r pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := r.Get(rowKey(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read key %x: %w", key, err)
	}
	// An empty value is not nil, which stands for an absent one.
	out := append(make([]byte, 0, len(value)), value...)
	if err := closer.Close(); err != nil {
		return nil, fmt.Errorf("read key %x: %w", key, err)
	}
	return out, nil
}

// rows walks the stored rows of a range in one direction.
type rows struct {
	iter    *pebble.Iterator
	reverse bool
	started bool
}

func (v *view) rows(rng keyRange, reverse bool) (*rows, error) {
	iter, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: rowKey(rng.begin), UpperBound: rowKey(rng.end)})
	if err != nil {
		return nil, fmt.Errorf("read range %x to %x: %w", rng.begin, rng.end, err)
	}
	return &rows{iter: iter, reverse: reverse}, nil
}

// next moves to the next row and gives its key and value, which are good until the next call. ok is false at the end.
func (r *rows) next() (key, value []byte, ok bool, err error) {
	switch {
	case !r.started && r.reverse:
		ok = r.iter.Last()
	case !r.started:
		ok = r.iter.First()
	case r.reverse:
		ok = r.iter.Prev()
	default:
		ok = r.iter.Next()
	}
	r.started = true
	if !ok {
		return nil, nil, false, r.iter.Error()
	}
	value, err = r.iter.ValueAndErr()
	return r.iter.Key()[1:], value, err == nil, err
}

// seekPast moves to the first, in the direction of the walk, that is not inside rng.
func (r *rows) seekPast(rng keyRange) (key, value []byte, ok bool, err error) {
	if r.reverse {
		ok = r.iter.SeekLT(rowKey(rng.begin))
	} else {
		ok = r.iter.SeekGE(rowKey(rng.end))
	}
	if !ok {
		return nil, nil, false, r.iter.Error()
	}
	value, err = r.iter.ValueAndErr()
	return r.iter.Key()[1:], value, err == nil, err
}

func (r *rows) close() error { return r.iter.Close() }

// before tells whether a comes before b in the direction of the walk.
func (r *rows) before(a, b []byte) bool {
	if r.reverse {
		return bytes.Compare(a, b) > 0
	}
	return bytes.Compare(a, b) < 0
}
