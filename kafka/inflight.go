package kafka

import (
	"context"
	"sync"
)

// inflight bounds what one connection holds in memory: requests that are not yet answered and responses that are not yet sent.
type inflight struct {
	maxRequests, maxBytes int

	mu       sync.Mutex
	requests int
	bytes    int
	freed    chan struct{} // made on demand, closed when something was released
}

// charge is what one request holds. It is the connection's inflight that guards it.
type charge struct {
	bytes    int
	released bool
}

// acquire waits for room for a request of so many bytes. One request is always let in, however large.
func (f *inflight) acquire(ctx context.Context, bytes int) (*charge, error) {
	for {
		f.mu.Lock()
		if f.requests == 0 || f.requests < f.maxRequests && f.bytes+bytes <= f.maxBytes {
			f.requests++
			f.bytes += bytes
			f.mu.Unlock()
			return &charge{bytes: bytes}, nil
		}
		if f.freed == nil {
			f.freed = make(chan struct{})
		}
		freed := f.freed
		f.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// add counts the bytes of the request's response from when it exists, unless the connection has let go of the request already.
func (f *inflight) add(c *charge, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !c.released {
		c.bytes += bytes
		f.bytes += bytes
	}
}

// release is the end of a request and its response.
func (f *inflight) release(c *charge) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.released = true
	f.requests--
	f.bytes -= c.bytes
	if f.freed != nil {
		close(f.freed)
		f.freed = nil
	}
}

// busy tells whether any request is not yet answered.
func (f *inflight) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests > 0
}
