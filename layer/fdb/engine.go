//go:build fdb

package fdb

import (
	"context"
	"sync"

	apple "github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/varvedb/varve/layer/fdb/client"
	"github.com/varvedb/varve/layer/kv"
)

// database is the engine over one cluster.
type database struct {
	options Options
	path    string // of the cluster file, as network.open gave it
	handle  apple.Database

	// alive ends with kv.ErrClosed; every transaction and every waiting watch ends with it.
	alive context.Context
	end   context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool           // under mu
	running sync.WaitGroup // transactions and waiting watches; grows under mu while not closed
}

var _ engine = (*database)(nil)

func openEngine(ctx context.Context, options Options) (engine, error) {
	path, handle, err := process.open(options)
	if err != nil {
		return nil, err
	}
	alive, end := context.WithCancelCause(context.WithoutCancel(ctx))
	return &database{options: options, path: path, handle: handle, alive: alive, end: end}, nil
}

// Close cancels what runs, waits until it has returned, and lets go of the cluster. It must not be called from inside a
// transaction's function.
func (d *database) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()

	d.end(kv.ErrClosed)
	d.running.Wait()
	process.release(d.path)
	return nil
}

// enter counts one caller in, and gives it a context that ends with ctx and with Close. leave must be called.
func (d *database) enter(ctx context.Context) (bound context.Context, leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, kv.ErrClosed
	}
	d.running.Add(1)
	bound, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.alive, func() { cancel(context.Cause(d.alive)) })
	return bound, func() {
		stop()
		cancel(nil)
		d.running.Done()
	}, nil
}

// ClientVersion is the release of the loaded client library.
func (d *database) ClientVersion() string { return client.Version() }

// Ping asks the cluster for a read version. It returns nil when the cluster answered, and otherwise, at the latest when
// ctx ends, why not: kv.ErrUnavailable, kv.ErrLocked, kv.ErrClosed.
func (d *database) Ping(ctx context.Context) error {
	return d.ReadTransact(ctx, func(tr kv.ReadTransaction) error {
		_, err := tr.ReadVersion()
		return err
	})
}

// Transact implements kv.Database.
func (d *database) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	var commit kv.Commit
	err := d.retry(ctx, func(a *attempt) (err error) {
		if err = fn(a); err == nil {
			commit, err = a.commit()
		}
		return err
	})
	if err != nil {
		return kv.Commit{}, err
	}
	return commit, nil
}

// ReadTransact implements kv.Database. Nothing is committed: reads at one version need no commit to be consistent.
func (d *database) ReadTransact(ctx context.Context, fn func(kv.ReadTransaction) error) error {
	return d.retry(ctx, func(a *attempt) error { return fn(a.reads()) })
}
