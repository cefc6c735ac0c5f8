// Package faults makes a database fail as FoundationDB does, for tests: conflicts, transactions that are too old, commits whose outcome
// is unknown and that did or did not happen, delays and outages. It wraps any engine.
//
// The wrapper runs a retry loop of its own around single runs of the engine. A run that is to fail without a commit ends with an error that
// the engine does not know and so does not retry; one that is to look unknown although it committed is failed after the engine's answer.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// Rates are the probabilities, 0 to 1, that a run of a transaction meets a fault.
type Rates struct {
	Conflict         float64 // at commit
	TooOld           float64 // at one of the first reads, or at commit
	UnknownCommitted float64 // the commit happens and looks unknown
	UnknownLost      float64 // the commit does not happen and looks unknown
	Delay            float64 // before the run, and before its commit, each
	// Delays last from MinDelay to MaxDelay.
	MinDelay time.Duration
	MaxDelay time.Duration
}

// Hooks are called around commits, by the goroutine of the transaction.
type Hooks struct {
	// BeforeCommit is called when the function has returned without an error. Its error ends the run uncommitted, and is retried
	// if it is retryable.
	BeforeCommit func(ctx context.Context) error
	// AfterCommit is called after a commit that happened, also one that is to look unknown.
	AfterCommit func(ctx context.Context, commit kv.Commit)
}

// Counts tells how often each fault was injected.
type Counts struct {
	Conflict, TooOld, UnknownCommitted, UnknownLost, Delay, Outage int64
}

// Database is a database with faults. All of its settings may be changed while transactions run.
type Database struct {
	inner kv.Database

	mu     sync.Mutex // guards all below
	random *rand.Rand
	rates  Rates
	hooks  Hooks
	counts Counts
	outage chan struct{} // closed while there is an outage
	down   bool
}

var _ kv.Database = (*Database)(nil)

// Wrap gives db with faults at the given rates, drawn from seed.
func Wrap(db kv.Database, seed uint64, rates Rates) *Database {
	return &Database{inner: db, random: rand.New(rand.NewPCG(seed, 0)), rates: rates, outage: make(chan struct{})}
}

// Unwrap gives the database underneath, which has no faults.
func (d *Database) Unwrap() kv.Database { return d.inner }

// SetRates changes the rates from the next run on.
func (d *Database) SetRates(rates Rates) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rates = rates
}

// SetHooks changes the hooks.
func (d *Database) SetHooks(hooks Hooks) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hooks = hooks
}

// SetOutage begins or ends an outage, in which every operation fails with kv.ErrUnavailable and watches end. Transact and
// ReadTransact retry until it is over or their context ends.
func (d *Database) SetOutage(down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if down == d.down {
		return
	}
	d.down = down
	if down {
		close(d.outage)
	} else {
		d.outage = make(chan struct{})
	}
}

// Counts tells what was injected so far.
func (d *Database) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

// backoff is short, so that tests are.
var backoff = kv.Backoff{First: 200 * time.Microsecond, Max: 20 * time.Millisecond}

// Transact implements kv.Database.
func (d *Database) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	var commit kv.Commit
	err := kv.Retry(ctx, backoff, func() (err error) {
		commit, err = d.attempt(ctx, fn)
		return err
	})
	if err != nil {
		return kv.Commit{}, err
	}
	return commit, nil
}

// attempt runs fn to one commit, or to one fault.
func (d *Database) attempt(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	var r *run
	commit, err := d.inner.Transact(ctx, func(tx kv.Transaction) error {
		r.dropWatches() // of a run that the engine itself repeats
		var err error
		if r, err = d.newRun(ctx); err != nil {
			return &injected{err}
		}
		if err := fn(transaction{reads{tx, r}, tx, r}); err != nil {
			return err
		}
		return inject(r.beforeCommit(ctx))
	})
	var fault *injected
	switch {
	case errors.As(err, &fault):
		r.dropWatches()
		return kv.Commit{}, fault.err
	case err != nil:
		return kv.Commit{}, err
	}
	if err := r.afterCommit(ctx, commit); err != nil {
		r.dropWatches()
		return kv.Commit{}, err
	}
	return commit, nil
}

// ReadTransact implements kv.Database.
func (d *Database) ReadTransact(ctx context.Context, fn func(kv.ReadTransaction) error) error {
	return kv.Retry(ctx, backoff, func() error {
		err := d.inner.ReadTransact(ctx, func(tx kv.ReadTransaction) error {
			r, err := d.newRun(ctx)
			if err != nil {
				return &injected{err}
			}
			if err := fn(reads{tx, r}); err != nil {
				return err
			}
			return inject(r.afterReads())
		})
		var fault *injected
		if errors.As(err, &fault) {
			return fault.err
		}
		return err
	})
}

// Close implements kv.Database. It closes the database underneath.
func (d *Database) Close() error { return d.inner.Close() }

// injected carries a fault through the engine. It has no Unwrap, or the engine would retry by itself.
type injected struct{ err error }

func (e *injected) Error() string { return "injected: " + e.err.Error() }

func inject(err error) error {
	if err == nil {
		return nil
	}
	return &injected{err}
}

var errOutage = fmt.Errorf("injected outage: %w", kv.ErrUnavailable)

// unavailable is the error of an operation in an outage, nil outside of one.
func (d *Database) unavailable() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.down {
		return nil
	}
	d.counts.Outage++
	return errOutage
}

// delay waits if the dice say so.
func (d *Database) delay(ctx context.Context) error {
	d.mu.Lock()
	var wait time.Duration
	if d.random.Float64() < d.rates.Delay {
		d.counts.Delay++
		wait = d.rates.MinDelay
		if spread := d.rates.MaxDelay - d.rates.MinDelay; spread > 0 {
			wait += time.Duration(d.random.Int64N(int64(spread)))
		}
	}
	d.mu.Unlock()
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("injected delay: %w", ctx.Err())
	case <-timer.C:
		return nil
	}
}
