//go:build fdb

package fdb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apple "github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/varvedb/varve/layer/kv"
)

// attempt is one run of a transaction's function. It is a kv.Transaction.
//
// The C transaction is used again by the next attempt, so an attempt that is over must not touch it: goroutines that
// a function left behind would write into somebody else's attempt. Nor may a call reach the library while the commit is under way: it
// would end the commit with used_during_commit, which may have been applied all the same. Every call therefore holds mu for reading
// while it hands its work to the library (not while it waits for an answer); what closes the attempt takes it for writing.
type attempt struct {
	reader
}

// run is the state that an attempt, its snapshot and its reads share.
type run struct {
	database *database
	ctx      context.Context // ends with the caller's, with Close, and after the transaction timeout unless the commit came first
	cancel   context.CancelCauseFunc
	timeout  *time.Timer
	stop     func() bool   // takes the cancellation of tr back; false when it has started
	stopped  chan struct{} // closed when the cancellation of tr is done

	mu     sync.RWMutex
	tr     apple.Transaction
	closed error // under mu: why calls are refused; nil while they are taken
	over   bool  // under mu: the attempt has ended
	reset  bool  // under mu: its context ended first, and tr has been reset

	state   sync.Mutex
	wrote   bool  // under state
	watched bool  // under state: a watch was made, which needs the C transaction after the attempt
	invalid error // under state: the first write that was refused; the commit returns it
}

var (
	_ kv.Transaction     = (*attempt)(nil)
	_ kv.ReadTransaction = reader{}
)

// errOver is what a call after the end of its attempt gets.
var errOver = fmt.Errorf("foundationdb: %w: the transaction is over", kv.ErrInvalid)

func newAttempt(ctx context.Context, d *database, tr apple.Transaction) *attempt {
	bound, cancel := context.WithCancelCause(ctx)
	r := &run{database: d, ctx: bound, cancel: cancel, tr: tr, stopped: make(chan struct{})}
	r.timeout = time.AfterFunc(d.options.TransactionTimeout, func() { cancel(errAttemptTimeout) })
	r.stop = context.AfterFunc(bound, func() {
		defer close(r.stopped)
		r.giveUp()
	})
	return &attempt{reader{run: r, source: tr}}
}

// giveUp makes every wait on tr return with transaction_cancelled. Cancelling is not enough: a multi-version client that has not reached
// the cluster yet has no transaction to cancel, and ends the waits on the one to come when it is reset, not before. After
// the reset tr would begin anew, so no call may reach it any more.
func (r *run) giveUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed == nil {
		r.closed = codeError("transaction", codeTransactionCancelled, ended(r.ctx))
	}
	r.reset = true
	r.tr.Cancel()
	r.tr.Reset()
}

// end makes the attempt's later calls fail, and tells whether the C transaction can still be used.
func (a *attempt) end() (usable bool) {
	r := a.run
	r.timeout.Stop()
	usable = r.stop()
	if !usable {
		<-r.stopped
	}
	r.cancel(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over, r.closed = true, errOver
	return usable
}

// watches tells whether a watch was made.
func (a *attempt) watches() bool {
	a.run.state.Lock()
	defer a.run.state.Unlock()
	return a.run.watched
}

// reads is the attempt without its writes, so that a read-only function cannot reach them by a type assertion.
func (a *attempt) reads() kv.ReadTransaction { return a.reader }

// hand lets do work on the C transaction; it returns why not, and does nothing, once the attempt is closed.
func (r *run) hand(do func()) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed != nil {
		return r.closed
	}
	do()
	return nil
}

// handLast is hand for the commit: it closes the attempt to every later call.
func (r *run) handLast(do func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != nil {
		return r.closed
	}
	r.closed = errOver
	do()
	return nil
}

func (r *run) isOver() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.over
}

// failed is the engine's error for what the binding returned. It tells a cancelled transaction's reason.
func (r *run) failed(op string, err error) error {
	var e apple.Error
	if errors.As(err, &e) {
		if cancelled(e.Code) && r.isOver() {
			return errOver
		}
		return codeError(op, e.Code, ended(r.ctx))
	}
	return fmt.Errorf("foundationdb: %s: %w", op, err)
}

// write lets do change the transaction if check finds no fault; the first fault is kept for the commit.
func (r *run) write(check error, do func(apple.Transaction) error) {
	var refused error
	err := check
	if err == nil {
		err = r.hand(func() { refused = do(r.tr) })
	}
	if err == nil && refused != nil {
		err = r.failed("write", refused)
	}
	r.state.Lock()
	defer r.state.Unlock()
	r.wrote = true
	if r.invalid == nil {
		r.invalid = err
	}
}

func (a *attempt) Set(key, value []byte) {
	a.run.write(firstOf(checkKey(key), checkValue(value)), func(tr apple.Transaction) error {
		tr.Set(apple.Key(key), value)
		return nil
	})
}

func (a *attempt) Clear(key []byte) {
	a.run.write(checkKey(key), func(tr apple.Transaction) error {
		tr.Clear(apple.Key(key))
		return nil
	})
}

func (a *attempt) ClearRange(begin, end []byte) {
	a.run.write(checkRange(begin, end), func(tr apple.Transaction) error {
		tr.ClearRange(keyRange(begin, end))
		return nil
	})
}

func (a *attempt) Add(key, param []byte) {
	a.run.write(firstOf(checkKey(key), checkValue(param)), func(tr apple.Transaction) error {
		tr.Add(apple.Key(key), param)
		return nil
	})
}

func (a *attempt) SetVersionstampedKey(key, value []byte) {
	a.run.write(firstOf(checkStampedKey(key), checkValue(value)), func(tr apple.Transaction) error {
		tr.SetVersionstampedKey(apple.Key(key), value)
		return nil
	})
}

func (a *attempt) SetVersionstampedValue(key, value []byte) {
	a.run.write(firstOf(checkKey(key), checkStampedValue(value)), func(tr apple.Transaction) error {
		tr.SetVersionstampedValue(apple.Key(key), value)
		return nil
	})
}

func (a *attempt) AddReadConflictRange(begin, end []byte) {
	err := checkRange(begin, end)
	var refused error
	if err == nil {
		err = a.run.hand(func() { refused = a.run.tr.AddReadConflictRange(keyRange(begin, end)) })
	}
	if err == nil && refused != nil {
		err = a.run.failed("add read conflict range", refused)
	}
	a.run.keep(err)
}

func (a *attempt) AddWriteConflictRange(begin, end []byte) {
	a.run.write(checkRange(begin, end), func(tr apple.Transaction) error {
		return tr.AddWriteConflictRange(keyRange(begin, end))
	})
}

func (a *attempt) ApproximateSize() (int64, error) {
	var future apple.FutureInt64
	if err := a.run.hand(func() { future = a.run.tr.GetApproximateSize() }); err != nil {
		return 0, err
	}
	size, err := future.Get()
	if err != nil {
		return 0, a.run.failed("get approximate size", err)
	}
	return size, nil
}

func (a *attempt) Watch(key []byte) kv.Watch {
	if err := checkKey(key); err != nil {
		return failedWatch{err}
	}
	w := &watch{database: a.run.database, turn: make(chan struct{}, 1)}
	if err := a.run.hand(func() { w.future = a.run.tr.Watch(apple.Key(key)) }); err != nil {
		return failedWatch{err}
	}
	a.run.state.Lock()
	defer a.run.state.Unlock()
	a.run.watched = true
	return w
}

// commit commits what the attempt wrote. A transaction that wrote nothing is committed too, which starts its watches. From here on
// only the caller and Close end the attempt: a commit that is given up might still land, and could not be retried, while the library waits
// out any outage and then knows how the commit ended, or that it cannot land any more (commit_unknown_result).
func (a *attempt) commit() (kv.Commit, error) {
	r := a.run
	wrote, err := r.outcome()
	if err != nil {
		return kv.Commit{}, err
	}
	if !r.timeout.Stop() {
		<-r.ctx.Done() // it is about to
	}
	if cause := ended(r.ctx); cause != nil { // not handed over yet, so nothing is unknown
		return kv.Commit{}, codeError("commit", codeTransactionCancelled, cause)
	}
	var stamp apple.FutureKey
	var done apple.FutureNil
	if err := r.handLast(func() {
		if wrote {
			stamp = r.tr.GetVersionstamp() // has to be asked for before the commit
		}
		done = r.tr.Commit()
	}); err != nil {
		return kv.Commit{}, err
	}
	if err := done.Get(); err != nil {
		return kv.Commit{}, r.commitFailed(wrote, err)
	}
	if !wrote {
		return kv.Commit{}, nil
	}
	return r.committed(stamp)
}

// outcome tells whether anything was written, and the first write that was refused.
func (r *run) outcome() (wrote bool, err error) {
	r.state.Lock()
	defer r.state.Unlock()
	return r.wrote, r.invalid
}

// keep keeps the first fault for the commit.
func (r *run) keep(err error) {
	r.state.Lock()
	defer r.state.Unlock()
	if r.invalid == nil {
		r.invalid = err
	}
}

// commitFailed is the error of a commit that was handed over. One that writes nothing stays in the library, so
// its outcome is never unknown.
func (r *run) commitFailed(wrote bool, err error) error {
	var e apple.Error
	if wrote && errors.As(err, &e) {
		return commitError(e.Code, ended(r.ctx))
	}
	return r.failed("commit", err)
}

// committed reads where tr was committed. The library turns a transaction that writes nothing after all into a read-only
// one, which has the version -1; a transaction that was reset since has that too.
func (r *run) committed(stamp apple.FutureKey) (kv.Commit, error) {
	version, err := r.committedVersion()
	if err != nil {
		return kv.Commit{}, unknownStamp(err)
	}
	if version < 0 {
		return kv.Commit{}, nil
	}
	bytes, err := stamp.Get()
	if err != nil {
		return kv.Commit{}, unknownStamp(err)
	}
	commit := kv.Commit{Version: version}
	if copy(commit.Versionstamp[:], bytes) != len(commit.Versionstamp) {
		return kv.Commit{}, unknownStamp(fmt.Errorf("%d bytes, want %d", len(bytes), len(commit.Versionstamp)))
	}
	return commit, nil
}

// committedVersion reads the version unless tr has been reset.
func (r *run) committedVersion() (int64, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.reset {
		return 0, ended(r.ctx)
	}
	return r.tr.GetCommittedVersion()
}

// unknownStamp is the error of a transaction that was committed, we cannot tell where: the caller's context ended between
// the commit and the answer. Not retried, and not to be taken for a failure.
func unknownStamp(cause error) error {
	number := 0
	var e apple.Error
	if errors.As(cause, &e) {
		number = e.Code
	}
	return &Error{Op: "versionstamp of a commit", Code: number, kind: kv.ErrCommitUnknown, cause: cause, retry: never}
}
