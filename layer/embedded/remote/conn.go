package remote

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// helloTimeout bounds the first exchange on a connection.
const helloTimeout = 5 * time.Second

// maxOutstanding bounds the requests of a connection that are not answered yet. Another one waits for the first reply.
const maxOutstanding = 1024

// conn is a connection of a client. One transaction at a time sends requests; replies come in the order of requests, and a goroutine of the
// connection's own reads them, whether anybody waits for them or not. So the server can always go on to the next request, however large its replies are and
// however many requests the client has yet to send. Replies that a transaction left behind are read before those of the next one.
type conn struct {
	net.Conn
	in    *bufio.Reader
	slots chan struct{} // holds one token for each reply that is due
	ended chan struct{} // closed when no reply will come any more; err is set before

	mu  sync.Mutex // guards all below
	due []*reply
	// hear takes the frames that come while no reply is due: of watches.
	hear func(frame []byte) error
	err  error
}

// reply is the answer to a request, which may be still on its way.
type reply struct {
	done chan struct{}
	body []byte // set before done is closed, as is err
	err  error  // of the connection
}

func newConn(raw net.Conn) *conn {
	return &conn{Conn: raw, in: bufio.NewReader(raw), slots: make(chan struct{}, maxOutstanding), ended: make(chan struct{})}
}

// acquire gives a connection that no transaction uses.
func (db *Database) acquire(ctx context.Context) (*conn, error) {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil, kv.ErrClosed
	}
	if n := len(db.idle); n > 0 {
		c := db.idle[n-1]
		db.idle = db.idle[:n-1]
		db.mu.Unlock()
		return c, nil
	}
	db.mu.Unlock()
	c, err := dial(ctx, db.path)
	if err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		c.Close()
		return nil, kv.ErrClosed
	}
	db.open[c] = struct{}{}
	db.goroutines.Go(func() {
		c.read()
		db.forget(c)
	})
	return c, nil
}

func dial(ctx context.Context, path string) (*conn, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connect to metadata server at %s: %w", path, ctx.Err())
		}
		return nil, fmt.Errorf("connect to metadata server at %s: %w: %w", path, kv.ErrUnavailable, err)
	}
	c := newConn(raw)
	if err := c.greet(); err != nil {
		c.Close()
		return nil, fmt.Errorf("metadata server at %s: %w", path, err)
	}
	return c, nil
}

// greet exchanges what both sides speak.
func (c *conn) greet() error {
	c.SetDeadline(time.Now().Add(helloTimeout))
	defer c.SetDeadline(time.Time{})
	if _, err := io.WriteString(c, hello); err != nil {
		return fmt.Errorf("%w: %w", kv.ErrUnavailable, err)
	}
	answer := make([]byte, len(hello))
	if _, err := io.ReadFull(c.in, answer); err != nil {
		return fmt.Errorf("%w: no greeting: %w", kv.ErrUnavailable, err)
	}
	if string(answer) != hello {
		return fmt.Errorf("it greets with %q, want %q: is it another version of varve?", answer, hello)
	}
	return nil
}

// release keeps a connection that is between transactions for the next one.
func (db *Database) release(c *conn) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if _, open := db.open[c]; !open || db.closed || len(db.idle) >= maxIdle {
		c.Close()
		return
	}
	db.idle = append(db.idle, c)
}

// forget is told of a connection that has ended.
func (db *Database) forget(c *conn) {
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.open, c)
	for i, other := range db.idle {
		if other == c {
			db.idle = append(db.idle[:i], db.idle[i+1:]...)
			return
		}
	}
}

// send sends a request. An error says that it was not sent; when sending fails half way, that is the reply's.
func (c *conn) send(request []byte) (*reply, error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ended:
		return nil, c.failure()
	}
	r := &reply{done: make(chan struct{})}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	c.due = append(c.due, r)
	c.mu.Unlock()
	if err := writeFrame(c, request); err != nil {
		c.fail(err)
	}
	return r, nil
}

// watch says who takes the frames that come when no reply is due.
func (c *conn) watch(hear func(frame []byte) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hear = hear
}

// read hands out what the server sends until the connection ends, which it closes.
func (c *conn) read() {
	for {
		frame, err := readFrame(c.in)
		if err == nil {
			err = c.deliver(frame)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// deliver gives a frame to who is to have it.
func (c *conn) deliver(frame []byte) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	if len(c.due) > 0 {
		r := c.due[0]
		c.due[0] = nil
		c.due = c.due[1:]
		c.mu.Unlock()
		r.body = frame
		close(r.done)
		<-c.slots
		return nil
	}
	hear := c.hear
	c.mu.Unlock()
	if hear == nil {
		return fmt.Errorf("a reply that nobody asked for: %w", errFrame)
	}
	return hear(frame)
}

// fail ends the connection, and with it every request that is not answered.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	for _, r := range c.due {
		r.err = err
		close(r.done)
	}
	c.due = nil
	close(c.ended)
	c.Close()
}

// failure is why the connection has ended, nil before.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
