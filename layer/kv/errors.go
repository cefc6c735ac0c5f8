package kv

import "errors"

// Kinds of failure. Engines wrap them with their own code and text; callers use errors.Is.
var (
	// ErrConflict: something that the transaction read was changed by another (not_committed, 1020). Retried by Transact.
	ErrConflict = errors.New("transaction conflict")
	// ErrTooOld: the transaction is older than five seconds (transaction_too_old, 1007; future_version, 1009). Retried by Transact.
	ErrTooOld = errors.New("transaction too old")
	// ErrCommitUnknown: the transaction may or may not have been committed (commit_unknown_result, 1021).
	// Retried by Transact until its context ends.
	ErrCommitUnknown = errors.New("commit result unknown")
	// ErrUnavailable: the database cannot be reached or did not answer in time. Transact retries until its context or the engine's retry limit ends.
	ErrUnavailable = errors.New("database unavailable")
	// ErrTransactionTooLarge: over MaxTransactionSize (2101).
	ErrTransactionTooLarge = errors.New("transaction too large")
	// ErrKeyTooLarge: over MaxKeySize (2102).
	ErrKeyTooLarge = errors.New("key too large")
	// ErrValueTooLarge: over MaxValueSize (2103).
	ErrValueTooLarge = errors.New("value too large")
	// ErrInvalid: the call makes no sense: an inverted range, a versionstamp offset outside the key, a key outside the user key space.
	ErrInvalid = errors.New("invalid operation")
	// ErrLocked: an operator has locked the database (1038).
	ErrLocked = errors.New("database locked")
	// ErrClosed: the engine was closed.
	ErrClosed = errors.New("database closed")
)

// Retryable tells whether Transact runs its function again after err.
func Retryable(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrTooOld) || errors.Is(err, ErrCommitUnknown) || errors.Is(err, ErrUnavailable)
}
