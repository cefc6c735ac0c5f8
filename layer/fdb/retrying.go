//go:build fdb

package fdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apple "github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/varvedb/varve/layer/kv"
)

// newTransactionDelay is the mean pause before a new C transaction takes the place of one that cannot be reset.
const newTransactionDelay = 50 * time.Millisecond

// retrying is the state of one Transact or ReadTransact between its attempts.
type retrying struct {
	database *database
	tr       *apple.Transaction // nil when the next attempt needs a new one
	runs     int
	last     error // of the last attempt
	unknown  error // of the last attempt whose commit had an unknown outcome
}

// retry runs body in attempts until one returns nil or an error that another attempt cannot mend, the retry limit is
// reached, or ctx ends.
func (d *database) retry(ctx context.Context, body func(*attempt) error) error {
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	r := &retrying{database: d}
	for {
		if cause := ended(ctx); cause != nil {
			return r.gaveUp(cause)
		}
		done, err := r.attempt(ctx, body)
		if done {
			return err
		}
	}
}

// attempt runs body once. It is done when that settles the transaction, and otherwise leaves it ready for the next attempt.
func (r *retrying) attempt(ctx context.Context, body func(*attempt) error) (done bool, err error) {
	if r.tr == nil {
		created, err := r.database.handle.CreateTransaction()
		if err != nil {
			return true, libraryError("create transaction", err)
		}
		r.tr = &created
	}
	a := newAttempt(ctx, r.database, *r.tr)
	err = body(a)
	usable := a.end()
	if err == nil {
		if !a.watches() {
			r.tr.Reset()
		}
		return true, nil
	}
	r.runs++
	r.last = err
	if errors.Is(err, kv.ErrCommitUnknown) {
		r.unknown = err
	}
	what, number := retryOf(err)
	limit := r.database.options.RetryLimit
	if what == never || limit > 0 && r.runs > limit {
		r.abandon()
		return true, r.failed(err)
	}
	if what == inNewTransaction || !usable {
		r.abandon()
		pause(ctx)
	} else {
		r.backOff(ctx, number)
	}
	return false, nil
}

// backOff lets the library wait as long as it thinks right for number, and reset the transaction. When the library refuses, it is of a release
// that does not know number as retryable, or ctx has ended; another transaction may do.
func (r *retrying) backOff(ctx context.Context, number int) {
	tr := *r.tr
	future := tr.OnError(apple.Error{Code: number})
	stop := context.AfterFunc(ctx, func() {
		tr.Cancel()
		tr.Reset() // see run.giveUp
	})
	err := future.Get()
	if stop() && err == nil {
		return
	}
	r.abandon()
	pause(ctx)
}

// abandon ends what the C transaction still reads and watches, and frees its memory. The binding frees the
// transaction itself when the garbage collector finds it, which is too late for ten megabytes that the collector does not see; the
// same holds for a transaction that succeeded.
func (r *retrying) abandon() {
	r.tr.Cancel()
	r.tr.Reset()
	r.tr = nil
}

// pause waits for newTransactionDelay, give or take half of it, or until ctx ends.
func pause(ctx context.Context) {
	timer := time.NewTimer(newTransactionDelay/2 + rand.N(newTransactionDelay))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// failed is err, with the unknown outcome of an earlier attempt if it hides one: a caller must not take the
// transaction for uncommitted. An error of the function is returned as it is.
func (r *retrying) failed(err error) error {
	var e *Error
	if r.unknown == nil || errors.Is(err, kv.ErrCommitUnknown) || !errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%w; after: %w", err, r.unknown)
}

// gaveUp is the error of a transaction whose context ended.
func (r *retrying) gaveUp(cause error) error {
	last := r.last
	if r.unknown != nil {
		last = r.unknown
	}
	return gaveUp(cause, last)
}
