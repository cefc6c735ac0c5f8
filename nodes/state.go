package nodes

import (
	"context"
	"sync"
)

// State is where a node is in its life. It only moves forward.
type State int

const (
	StateNew      State = iota // made, not started
	StateStarting              // registered; recovers its earlier epochs and opens streams
	StateRunning               // serves every stream that it should
	StateStopping              // closes its streams
	StateStopped               // ended cleanly
	StateFailed                // fenced, or broken for good; Err says why
)

var stateNames = [...]string{"new", "starting", "running", "stopping", "stopped", "failed"}

func (s State) String() string { return stateNames[s] }

// life holds the state of a node and tells who waits for it.
type life struct {
	mu      sync.Mutex // guards what follows
	state   State
	err     error         // set with StateFailed
	changed chan struct{} // closed and replaced at each change
	over    chan struct{} // closed with StateStopping and beyond: no request waits any longer
	done    chan struct{} // closed by finish: every goroutine of the node has ended
	closed  bool          // over is closed

	finished sync.Once
}

func newLife() *life {
	return &life{changed: make(chan struct{}), over: make(chan struct{}), done: make(chan struct{})}
}

// ending is closed once the node stops or fails.
func (l *life) ending() <-chan struct{} { return l.over }

// advance moves forward to a state; false when the life is there or beyond already.
func (l *life) advance(to State, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state >= to || l.state == StateStopped {
		return false
	}
	l.state, l.err = to, err
	close(l.changed)
	l.changed = make(chan struct{})
	if to >= StateStopping && !l.closed {
		l.closed = true
		close(l.over)
	}
	return true
}

func (l *life) get() (State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.err
}

// await returns once the state is at least s.
func (l *life) await(ctx context.Context, s State) (State, error) {
	for {
		l.mu.Lock()
		state, err, changed := l.state, l.err, l.changed
		l.mu.Unlock()
		if state >= s {
			return state, err
		}
		select {
		case <-ctx.Done():
			return state, ctx.Err()
		case <-changed:
		}
	}
}

// finish closes done, once.
func (l *life) finish() { l.finished.Do(func() { close(l.done) }) }
