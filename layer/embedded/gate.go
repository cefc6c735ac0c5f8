package embedded

import (
	"sync"

	"github.com/varvedb/varve/layer/kv"
)

// gate lets operations in until it is closed, and waits for those inside.
type gate struct {
	mu     sync.RWMutex // orders enter and close
	closed bool
	inside sync.WaitGroup
}

func (g *gate) enter() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return kv.ErrClosed
	}
	g.inside.Add(1)
	return nil
}

func (g *gate) leave() { g.inside.Done() }

func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}
