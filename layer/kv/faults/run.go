package faults

import (
	"context"
	"fmt"
	"sync"

	"github.com/varvedb/varve/layer/kv"
)

// fate is what happens to a run.
type fate int

const (
	fateNone fate = iota
	fateConflict
	fateTooOld
	fateUnknownCommitted
	fateUnknownLost
)

// run is one run of a transaction's function.
type run struct {
	db    *Database
	hooks Hooks
	fate  fate

	mu      sync.Mutex // guards all below
	healthy int        // reads that still work before one is too old
	watches []kv.Watch
}

// newRun draws the fate of a run, after a delay perhaps.
func (d *Database) newRun(ctx context.Context) (*run, error) {
	if err := d.delay(ctx); err != nil {
		return nil, err
	}
	if err := d.unavailable(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &run{db: d, hooks: d.hooks, healthy: d.random.IntN(4)}
	dice := d.random.Float64()
	for _, c := range []struct {
		fate fate
		rate float64
	}{
		{fateConflict, d.rates.Conflict},
		{fateTooOld, d.rates.TooOld},
		{fateUnknownCommitted, d.rates.UnknownCommitted},
		{fateUnknownLost, d.rates.UnknownLost},
	} {
		if dice < c.rate {
			r.fate = c.fate
			break
		}
		dice -= c.rate
	}
	return r, nil
}

// beforeRead is the fault of a read.
func (r *run) beforeRead() error {
	if err := r.db.unavailable(); err != nil {
		return err
	}
	if r.fate != fateTooOld {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.healthy--; r.healthy >= 0 {
		return nil
	}
	return r.tooOld()
}

func (r *run) tooOld() error {
	r.count(func(c *Counts) { c.TooOld++ })
	return fmt.Errorf("injected: %w", kv.ErrTooOld)
}

// afterReads is the fault of a read-only transaction that has done its reads.
func (r *run) afterReads() error {
	if r.fate == fateTooOld {
		return r.tooOld()
	}
	return r.db.unavailable()
}

// beforeCommit is the fault of a commit that does not happen.
func (r *run) beforeCommit(ctx context.Context) error {
	if r.hooks.BeforeCommit != nil {
		if err := r.hooks.BeforeCommit(ctx); err != nil {
			return err
		}
	}
	if err := r.db.delay(ctx); err != nil {
		return err
	}
	switch r.fate {
	case fateConflict:
		r.count(func(c *Counts) { c.Conflict++ })
		return fmt.Errorf("injected: %w", kv.ErrConflict)
	case fateTooOld:
		return r.tooOld()
	case fateUnknownLost:
		r.count(func(c *Counts) { c.UnknownLost++ })
		return fmt.Errorf("injected, was not committed: %w", kv.ErrCommitUnknown)
	}
	return r.db.unavailable()
}

// afterCommit is the fault of a commit that happened.
func (r *run) afterCommit(ctx context.Context, commit kv.Commit) error {
	if r.hooks.AfterCommit != nil {
		r.hooks.AfterCommit(ctx, commit)
	}
	if r.fate != fateUnknownCommitted {
		return nil
	}
	r.count(func(c *Counts) { c.UnknownCommitted++ })
	return fmt.Errorf("injected, was committed: %w", kv.ErrCommitUnknown)
}

func (r *run) count(add func(*Counts)) {
	r.db.mu.Lock()
	defer r.db.mu.Unlock()
	add(&r.db.counts)
}

// dropWatches ends the watches of a run that did not succeed.
func (r *run) dropWatches() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.watches {
		w.Cancel()
	}
	r.watches = nil
}

// failed is a read that failed.
type failed struct{ err error }

type failedValue failed

func (f failedValue) Get() ([]byte, error) { return nil, f.err }

type failedRange failed

func (f failedRange) Get() ([]kv.KeyValue, error) { return nil, f.err }

// reads are reads with the faults of a run.
type reads struct {
	inner kv.ReadTransaction
	run   *run
}

func (r reads) Get(key []byte) kv.Value {
	if err := r.run.beforeRead(); err != nil {
		return failedValue{err}
	}
	return r.inner.Get(key)
}

func (r reads) GetRange(begin, end []byte, options kv.RangeOptions) kv.Range {
	if err := r.run.beforeRead(); err != nil {
		return failedRange{err}
	}
	return r.inner.GetRange(begin, end, options)
}

func (r reads) Snapshot() kv.ReadTransaction { return reads{r.inner.Snapshot(), r.run} }

func (r reads) ReadVersion() (int64, error) {
	if err := r.run.beforeRead(); err != nil {
		return 0, err
	}
	return r.inner.ReadVersion()
}

// transaction is a transaction with the faults of a run; writes have none of their own.
type transaction struct {
	reads
	tx  kv.Transaction
	run *run
}

func (t transaction) Set(key, value []byte)        { t.tx.Set(key, value) }
func (t transaction) Clear(key []byte)             { t.tx.Clear(key) }
func (t transaction) ClearRange(begin, end []byte) { t.tx.ClearRange(begin, end) }
func (t transaction) Add(key, param []byte)        { t.tx.Add(key, param) }

func (t transaction) SetVersionstampedKey(key, value []byte) { t.tx.SetVersionstampedKey(key, value) }
func (t transaction) SetVersionstampedValue(key, value []byte) {
	t.tx.SetVersionstampedValue(key, value)
}

func (t transaction) AddReadConflictRange(begin, end []byte)  { t.tx.AddReadConflictRange(begin, end) }
func (t transaction) AddWriteConflictRange(begin, end []byte) { t.tx.AddWriteConflictRange(begin, end) }

func (t transaction) ApproximateSize() (int64, error) { return t.tx.ApproximateSize() }

func (t transaction) Watch(key []byte) kv.Watch {
	w := t.tx.Watch(key)
	t.run.mu.Lock()
	defer t.run.mu.Unlock()
	t.run.watches = append(t.run.watches, w)
	return watch{w, t.run.db}
}

// watch is a watch that an outage ends.
type watch struct {
	kv.Watch
	db *Database
}

func (w watch) Wait(ctx context.Context) error {
	w.db.mu.Lock()
	outage := w.db.outage
	w.db.mu.Unlock()
	waiting, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-outage:
			stop()
		case <-waiting.Done():
		}
	}()
	err := w.Watch.Wait(waiting)
	stop()
	<-ended
	if err == nil || ctx.Err() != nil {
		return err
	}
	select {
	case <-outage: // which may be over by now
		return errOutage
	default:
		return err
	}
}
