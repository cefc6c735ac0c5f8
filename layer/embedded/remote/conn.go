package remote

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// helloTimeout bounds the first exchange on a connection.
const helloTimeout = 5 * time.Second

// conn is a connection of a client. One goroutine uses it at a time.
type conn struct {
	net.Conn
	in *bufio.Reader
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
	c := &conn{Conn: raw, in: bufio.NewReader(raw)}
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
	if db.closed || len(db.idle) >= maxIdle {
		delete(db.open, c)
		c.Close()
		return
	}
	db.idle = append(db.idle, c)
}

// discard closes a connection.
func (db *Database) discard(c *conn) {
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.open, c)
	c.Close()
}

// broken closes a connection that failed. Those that are idle have failed with it, since the server is the same.
func (db *Database) broken(c *conn) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, other := range append(db.idle, c) {
		delete(db.open, other)
		other.Close()
	}
	db.idle = nil
}

// roundTrip sends a request and waits for its reply until ctx ends. After an error, which is the connection's, it is of no more use.
func (c *conn) roundTrip(ctx context.Context, request []byte) (reply []byte, err error) {
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.SetDeadline(time.Unix(1, 0))
		close(cut)
	})
	defer func() {
		if !stop() {
			<-cut
			c.SetDeadline(time.Time{})
		}
	}()
	if err := writeFrame(c, request); err != nil {
		return nil, err
	}
	return readFrame(c.in)
}
