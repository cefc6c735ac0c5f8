// Package watching is the half of a watch that waits: what the caller of a transaction holds, and the engine that watches the key tells once.
package watching

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/varvedb/varve/layer/kv"
)

// Watch is one watch on a key. It is told once how it ended; what it is told later is ignored.
type Watch struct {
	key    []byte
	cancel func() // frees what the other half keeps

	done chan struct{}
	once sync.Once
	err  error // why it will not fire; set before done is closed
}

var _ kv.Watch = (*Watch)(nil)

// New gives a watch on key. Cancel calls free, which may be nil, each time that it is called itself.
func New(key []byte, free func()) *Watch {
	return &Watch{key: bytes.Clone(key), cancel: free, done: make(chan struct{})}
}

// Key is what is watched; it must not be changed.
func (w *Watch) Key() []byte { return w.key }

// Finish ends the watch. With nil it has fired; otherwise Wait returns why it will not, with the key.
func (w *Watch) Finish(err error) {
	w.once.Do(func() {
		if err != nil {
			w.err = fmt.Errorf("watch on key %x: %w", w.key, err)
		}
		close(w.done)
	})
}

// NotCommitted ends the watch of a run that was not committed, or may not have been.
func (w *Watch) NotCommitted(cause error) {
	w.Finish(fmt.Errorf("its transaction was not committed: %w", cause))
}

// Done is closed when the watch has ended.
func (w *Watch) Done() <-chan struct{} { return w.done }

// Wait implements kv.Watch. When ctx ends first, the watch is cancelled.
func (w *Watch) Wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		w.Cancel()
		return fmt.Errorf("watch on key %x given up: %w", w.key, ctx.Err())
	}
}

// Cancel implements kv.Watch.
func (w *Watch) Cancel() {
	if w.cancel != nil {
		w.cancel()
	}
	w.Finish(fmt.Errorf("cancelled: %w", context.Canceled))
}
