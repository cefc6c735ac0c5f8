package nodes

import (
	"context"
	"sync"
)

// pool runs one job per stream at a time, and a bounded number at once. Workers start when there is work and end when there is none.
type pool struct {
	limit int
	wg    *sync.WaitGroup // of the owner, who waits for the workers

	mu      sync.Mutex // guards what follows
	ids     map[int64]struct{}
	queue   []job
	workers int
	drained chan struct{} // closed while there is nothing to do
}

type job struct {
	id  int64
	run func(context.Context)
}

func newPool(limit int, wg *sync.WaitGroup) *pool {
	p := &pool{limit: limit, wg: wg, ids: map[int64]struct{}{}, drained: make(chan struct{})}
	close(p.drained)
	return p
}

// submit queues a job unless one for the stream is queued or runs.
func (p *pool) submit(ctx context.Context, id int64, run func(context.Context)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, busy := p.ids[id]; busy {
		return false
	}
	if len(p.ids) == 0 {
		p.drained = make(chan struct{})
	}
	p.ids[id] = struct{}{}
	p.queue = append(p.queue, job{id, run})
	if p.workers < p.limit {
		p.workers++
		p.wg.Go(func() { p.work(ctx) })
	}
	return true
}

func (p *pool) work(ctx context.Context) {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.workers--
			p.queue = nil
			p.mu.Unlock()
			return
		}
		j := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		if ctx.Err() == nil {
			j.run(ctx)
		}
		p.mu.Lock()
		delete(p.ids, j.id)
		if len(p.ids) == 0 {
			close(p.drained)
		}
		p.mu.Unlock()
	}
}

// wait returns once nothing is queued or runs.
func (p *pool) wait(ctx context.Context) error {
	p.mu.Lock()
	drained := p.drained
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-drained:
		return nil
	}
}

// size is the number of jobs that are queued or run.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ids)
}
