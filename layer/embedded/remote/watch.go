package remote

import (
	"fmt"

	"github.com/varvedb/varve/layer/embedded/internal/watching"
	"github.com/varvedb/varve/layer/kv"
)

func (t *transaction) Watch(key []byte) kv.Watch {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := watching.New(key, nil)
	err := checkSize(key, nil)
	if err == nil {
		// Nobody waits for the reply: when the request was lost, so is the commit.
		_, err = t.start(appendBytes([]byte{opWatch}, key))
	}
	if err != nil {
		w.Finish(err)
		return w
	}
	t.watches = append(t.watches, w)
	return w
}

// await owns the connection of a committed transaction until every watch has ended, and then closes it, by which the server forgets those that
// were cancelled. The connection's reader tells the watches what the server sends (tell) and that it has ended.
func (db *Database) await(c *conn, watches []*watching.Watch) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		for _, w := range watches {
			w.Finish(kv.ErrClosed)
		}
		return
	}
	db.goroutines.Go(func() {
		for _, w := range watches {
			select {
			case <-w.Done():
			case <-c.ended:
				err := db.usable()
				if err == nil {
					err = fmt.Errorf("%w: %w", kv.ErrUnavailable, c.failure())
				}
				w.Finish(err)
			}
		}
		c.Close()
	})
}

// tell finishes the watch that a frame is about.
func tell(watches []*watching.Watch, frame []byte) error {
	d := &decoder{rest: frame}
	n := d.number()
	ended := d.status()
	if err := d.end(); err != nil {
		return err
	}
	if n >= uint64(len(watches)) {
		return errFrame
	}
	watches[n].Finish(ended)
	return nil
}
