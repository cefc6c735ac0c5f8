package kafka

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime/pprof"
	"sync"
	"time"
)

// connection serves one client.
//
// The reader (serve) takes frames, one after the other, and starts to work on each; the writer answers in the order of requests. What
// happens between:
//
//   - Produce is worked on by the reader itself until its batches are appended, so that appends happen in the order of requests; it is
//     answered later, when they are durable. While the log has no room the reader waits, and so does the client.
//   - Fetch waits for records on a goroutine of its own. One Fetch of a connection is worked on at a time: the next begins when the
//     answer of the one before was written. So a client that does not read costs one response's memory, however much it asks for.
//   - Everything else runs on a goroutine of its own.
//
// inflight bounds requests and responses in memory; beyond it the reader does not read.
type connection struct {
	server *Server
	conn   net.Conn
	peer   string

	// ctx ends when the connection does. The reader, the writer and whoever finds that the client is gone may cancel it.
	ctx    context.Context
	cancel context.CancelFunc

	inflight inflight
	queue    chan *call     // in request order, from the reader to the writer; its capacity is never exceeded, inflight sees to it
	workers  sync.WaitGroup // goroutines that work on requests
	fetches  <-chan struct{}
}

// serve runs the connection until the client leaves, misbehaves, or the server stops. It returns when all that it started has ended.
func (c *connection) serve() {
	defer c.cancel()
	writer := make(chan struct{})
	go pprof.Do(c.ctx, pprof.Labels("varve", "kafka writer"), func(context.Context) {
		defer close(writer)
		c.write()
	})
	err := c.read()
	c.server.logEnd(c.peer, err)
	close(c.queue)
	if errors.Is(err, errStopping) {
		<-writer // answers what is being worked on
	}
	c.cancel()
	_ = c.conn.Close() // wakes the writer; what was answered is sent already
	<-writer
	c.workers.Wait()
}

// errStopping ends the reader when the server stops.
var errStopping = errors.New("listener is stopping")

// read takes requests until the connection ends.
func (c *connection) read() error {
	o := c.server.options
	f := frames{conn: c.conn, r: bufio.NewReaderSize(c.conn, 16<<10), idleTimeout: o.IdleTimeout, readTimeout: o.ReadTimeout, max: c.server.maxFrame, stopping: c.server.stopping}
	for {
		size, _, err := f.awaitNext(c.inflight.busy)
		if err != nil {
			return c.ending(err)
		}
		charge, err := c.inflight.acquire(c.ctx, size)
		if err != nil {
			return err
		}
		frame, err := f.read(size)
		if err != nil {
			return c.ending(err)
		}
		c.server.metrics.ReceivedBytes.Add(float64(size + frameSizeBytes))
		if err := c.start(frame, charge); err != nil {
			return err
		}
	}
}

// ending is errStopping when that is why a read failed.
func (c *connection) ending(err error) error {
	if c.server.stopping() {
		return errStopping
	}
	return err
}

// start begins to work on the request in frame.
func (c *connection) start(frame []byte, charge *charge) error {
	r, err := c.server.parseRequest(frame)
	if err != nil && !errors.Is(err, errOtherVersion) {
		return err
	}
	r.peer = c.peer
	call := &call{request: r, inflight: &c.inflight, charge: charge, done: make(chan struct{}), written: make(chan struct{})}
	if err != nil {
		call.reply(r.otherAPIVersion(c.server.apis))
	} else if err := r.api.handle(c.ctx, c, call); err != nil {
		return err
	}
	c.queue <- call
	return nil
}

// work runs f on a goroutine that the connection waits for.
func (c *connection) work(name string, f func()) {
	c.workers.Add(1)
	go pprof.Do(c.ctx, pprof.Labels("varve", "kafka "+name), func(context.Context) {
		defer c.workers.Done()
		f()
	})
}

// fetchTurn gives the turn of a Fetch: wait is closed when the one before it has been answered.
func (c *connection) fetchTurn(call *call) (wait <-chan struct{}) {
	wait, c.fetches = c.fetches, call.written
	return wait
}

// write answers requests in order. After a failure it only lets go of what is left.
func (c *connection) write() {
	failed := false
	for call := range c.queue {
		if !failed {
			if err := c.writeReply(call); err != nil {
				failed = true
				c.cancel()
				_ = c.conn.Close() // wakes the reader
			}
		}
		close(call.written)
		c.inflight.release(call.charge)
	}
}

// errClose ends a connection after a reply that says so.
var errClose = errors.New("closed after the reply")

func (c *connection) writeReply(call *call) error {
	select {
	case <-call.done:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	reply := call.finish()
	size := reply.size()
	if err := c.send(reply.buffers); err != nil {
		return err
	}
	m := c.server.metrics
	m.SentBytes.Add(float64(size))
	m.Requests.WithLabelValues(call.request.api.name).Inc()
	m.RequestSeconds.WithLabelValues(call.request.api.name).Observe(time.Since(call.request.arrived).Seconds())
	if reply.close {
		return errClose
	}
	return nil
}

// sendChunk is the most that is written at once: the client has WriteTimeout for each such part, however large the whole is.
const sendChunk = 1 << 20

// send writes the buffers.
func (c *connection) send(buffers net.Buffers) error {
	for len(buffers) > 0 {
		chunk, rest := cutBuffers(buffers, sendChunk)
		if err := c.conn.SetWriteDeadline(time.Now().Add(c.server.options.WriteTimeout)); err != nil {
			return err
		}
		if _, err := chunk.WriteTo(c.conn); err != nil {
			return err
		}
		buffers = rest
	}
	return nil
}

// cutBuffers takes buffers of together at most size bytes off the front.
func cutBuffers(buffers net.Buffers, size int) (chunk, rest net.Buffers) {
	for i, b := range buffers {
		if len(b) <= size {
			size -= len(b)
			continue
		}
		chunk = append(chunk, buffers[:i]...)
		rest = append(rest, buffers[i:]...)
		if size > 0 {
			chunk = append(chunk, b[:size])
			rest[0] = b[size:]
		}
		return chunk, rest
	}
	return buffers, nil
}

// interrupt makes the reader look whether the server is stopping.
func (c *connection) interrupt() {
	_ = c.conn.SetReadDeadline(time.Now())
}

// expected tells whether err is how connections usually end.
func expected(err error) bool {
	var timeout net.Error
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errStopping) || errors.Is(err, context.Canceled) ||
		errors.As(err, &timeout) && timeout.Timeout()
}
