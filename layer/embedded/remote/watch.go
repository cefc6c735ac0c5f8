package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/varvedb/varve/layer/kv"
)

// watch is a watch whose other end is in the server.
type watch struct {
	key  []byte
	done chan struct{}
	once sync.Once
	err  error // why it will not fire; set before done is closed
}

func newWatch(key []byte) *watch {
	return &watch{key: append([]byte(nil), key...), done: make(chan struct{})}
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
	w.finish(fmt.Errorf("watch on key %x cancelled: %w", w.key, context.Canceled))
}

func (t *transaction) Watch(key []byte) kv.Watch {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := newWatch(key)
	err := checkSize(key, nil)
	if err == nil {
		var d *decoder
		if d, err = t.call(appendBytes([]byte{opWatch}, key)); err == nil {
			err = d.end()
		}
	}
	if err != nil {
		w.finish(err)
		return w
	}
	t.watches = append(t.watches, w)
	return w
}

// await owns the connection until every watch has ended: it tells them what the server sends, and closes the connection, by which the
// server forgets those that were cancelled.
func (db *Database) await(c *conn, watches []*watch) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		for _, w := range watches {
			w.finish(fmt.Errorf("watch on key %x: %w", w.key, kv.ErrClosed))
		}
		return
	}
	db.watches.Go(func() {
		var reading sync.WaitGroup
		reading.Go(func() {
			err := hear(c, watches)
			if closed := db.usable(); closed != nil {
				err = closed
			}
			for _, w := range watches {
				w.finish(fmt.Errorf("watch on key %x: %w", w.key, err))
			}
		})
		for _, w := range watches {
			<-w.done
		}
		db.discard(c)
		reading.Wait()
	})
}

// hear finishes watches as the server says, until the connection ends.
func hear(c *conn, watches []*watch) error {
	for {
		frame, err := readFrame(c.in)
		if err != nil {
			return fmt.Errorf("%w: %w", kv.ErrUnavailable, err)
		}
		d := &decoder{rest: frame}
		n := d.number()
		ended := d.status()
		if err := d.end(); err != nil || n >= uint64(len(watches)) {
			return errors.Join(kv.ErrUnavailable, errFrame, err)
		}
		watches[n].finish(ended)
	}
}
