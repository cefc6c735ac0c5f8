package fdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// Error is an error code of FoundationDB with what was being done. errors.Is finds the kind of layer/kv that the table in
// codes.go gives it, and what ended the transaction, if that is why.
type Error struct {
	Op    string // "get", "commit", ...
	Code  int    // FoundationDB's error code
	kind  error  // of layer/kv, nil for a code that callers do not tell apart
	cause error  // what ended the attempt, nil when the cluster or the library did
	retry retry
}

func (e *Error) Error() string {
	text := fmt.Sprintf("foundationdb: %s: %s (%d)", e.Op, codeOf(e.Code).name, e.Code)
	if e.kind != nil && !errors.Is(e.cause, e.kind) {
		text = fmt.Sprintf("foundationdb: %s: %s: %s (%d)", e.Op, e.kind, codeOf(e.Code).name, e.Code)
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.kind != nil {
		errs = append(errs, e.kind)
	}
	if e.cause != nil {
		errs = append(errs, e.cause)
	}
	return errs
}

// errAttemptTimeout is the cause of an attempt that Options.TransactionTimeout ended.
var errAttemptTimeout = errors.New("no answer within the transaction timeout")

// codeError is the error of an operation other than a commit. cause is why the attempt was cancelled, nil when it was not.
func codeError(op string, number int, cause error) error {
	row := codeOf(number)
	e := &Error{Op: op, Code: number, kind: row.kind, retry: row.retry}
	if cancelled(number) && cause != nil {
		e.cause, e.kind = cause, causeKind(cause)
		if errors.Is(cause, errAttemptTimeout) {
			e.retry = inNewTransaction
		}
	}
	return e
}

// commitError is the error of a commit that had been handed to the library. A cancelled one may have been
// committed, and may still be: unlike after commit_unknown_result the library does not wait until it cannot, so a
// retry might be overtaken by it. It is therefore not retried.
func commitError(number int, cause error) error {
	switch {
	case cancelled(number):
		return &Error{Op: "commit", Code: number, kind: kv.ErrCommitUnknown, cause: cause, retry: never}
	case number == codeClusterVersion:
		return &Error{Op: "commit", Code: number, kind: kv.ErrCommitUnknown, retry: afterBackoff}
	}
	return codeError("commit", number, nil)
}

// cancelled tells whether number says that somebody ended the transaction or its wait.
func cancelled(number int) bool {
	return number == codeTransactionCancelled || number == codeTransactionTimedOut || number == codeOperationCancelled
}

// ended says what ended ctx, nil while it has not ended: kv.ErrClosed, errAttemptTimeout, or the context error of the
// caller, with the caller's own cause if there is one.
func ended(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if cause == nil || errors.Is(cause, kv.ErrClosed) || errors.Is(cause, errAttemptTimeout) || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// causeKind is the kind of an attempt that was ended by cause. A caller that gave up learns just that.
func causeKind(cause error) error {
	switch {
	case errors.Is(cause, kv.ErrClosed):
		return kv.ErrClosed
	case errors.Is(cause, context.Canceled):
		return nil
	}
	return kv.ErrUnavailable
}

// retryOf says what to do after err, which fn or a commit returned. The second result is the code to hand to the library.
func retryOf(err error) (retry, int) {
	var e *Error
	if errors.As(err, &e) {
		return e.retry, e.Code
	}
	if kv.Retryable(err) { // a kind without a code: fn made it
		return afterBackoff, codeNotCommitted
	}
	return never, 0
}

// gaveUp is the error of a transaction whose context ended between two attempts, or while it waited for the next; last
// is the error of the last attempt.
func gaveUp(cause, last error) error {
	if last == nil {
		if kind := causeKind(cause); kind != nil && !errors.Is(cause, kind) {
			return fmt.Errorf("foundationdb: %w: %w", kind, cause)
		}
		return fmt.Errorf("foundationdb: %w", cause)
	}
	if errors.Is(last, cause) {
		return last
	}
	return fmt.Errorf("transaction given up: %w: %w", last, cause)
}
