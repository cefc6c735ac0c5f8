// Package kv says what the layer needs of FoundationDB, in FoundationDB's own words.
//
// Two engines implement it: layer/fdb over Apple's Go binding and layer/embedded over Pebble. layer/kvtest is the
// contract that both must pass. Limits are FoundationDB's, whichever engine serves them.
package kv

import "context"

// Limits of a transaction, as FoundationDB sets them.
const (
	MaxKeySize         = 10_000     // bytes
	MaxValueSize       = 100_000    // bytes
	MaxTransactionSize = 10_000_000 // bytes: keys, values and conflict ranges of what it writes
	// TargetTransactionSize is what the layer keeps its own transactions under, bytes.
	TargetTransactionSize = 1_000_000
)

// Database is one key space with strictly serializable transactions.
type Database interface {
	// Transact runs fn in a read-write transaction and commits it. fn runs again, in a fresh transaction, after
	// every retryable error, commit_unknown_result among them: an earlier run may have been committed, so fn must be safe to
	// run twice. An error of fn that is not a retryable engine error ends it uncommitted and is returned as it is.
	// When ctx ends while the outcome of a commit is open the error is ErrCommitUnknown.
	Transact(ctx context.Context, fn func(Transaction) error) (Commit, error)

	// ReadTransact runs fn in a read-only transaction at one read version, again after every retryable error.
	// Its read version is at least as new as every commit that was answered before the call.
	ReadTransact(ctx context.Context, fn func(ReadTransaction) error) error

	// Close ends the engine. Transactions that are running fail with ErrClosed.
	Close() error
}

// Commit tells where a transaction was committed. It is zero for one that wrote nothing.
type Commit struct {
	Version      int64        // commit version
	Versionstamp Versionstamp // what versionstamped keys and values of this transaction carry
}

// Versionstamp is the 10 bytes by which a commit is ordered: 8 bytes of commit version and 2 of batch order, big endian.
type Versionstamp [10]byte

// KeyValue is one row.
type KeyValue struct {
	Key   []byte
	Value []byte
}

// RangeOptions bounds and orders a range read.
type RangeOptions struct {
	Limit   int  // rows; 0 means all of them, which only a caller that knows the range to be small may ask for
	Reverse bool // from the end of the range
}

// Value is a read under way. Get waits for it; a key that is absent gives nil and no error, an empty value gives a
// non-nil empty slice. The slice is the caller's.
type Value interface {
	Get() ([]byte, error)
}

// Range is a range read under way. Get waits for it and returns rows in the order asked for. The slices are the caller's.
type Range interface {
	Get() ([]KeyValue, error)
}

// ReadTransaction reads at one version. Reads are started at once and may be waited for later, so that several
// of them cost one round trip. It is safe for use by several goroutines.
type ReadTransaction interface {
	Get(key []byte) Value
	// GetRange reads the rows with begin <= key < end.
	GetRange(begin, end []byte, options RangeOptions) Range
	// Snapshot gives the same transaction with reads that add no read conflict range.
	Snapshot() ReadTransaction
	// ReadVersion is the version that reads see.
	ReadVersion() (int64, error)
}

// Transaction reads at one version, sees its own writes, and commits them if nothing that it read has changed.
type Transaction interface {
	ReadTransaction

	Set(key, value []byte)
	Clear(key []byte)
	// ClearRange clears the rows with begin <= key < end.
	ClearRange(begin, end []byte)
	// Add is FoundationDB's atomic ADD: little-endian addition that wraps at the length of param, and adds no read conflict.
	// An absent value counts as zero; a longer one is cut and a shorter one is extended to the length of param.
	Add(key, param []byte)
	// SetVersionstampedKey sets a key in which the 10 bytes at an offset are replaced by the versionstamp of the commit. The
	// offset is the last 4 bytes of key, little endian, and is not part of the key (see tuple.PackWithVersionstamp), but counts
	// towards MaxKeySize. Until the commit nobody knows the key: reads of the transaction where it may come to lie fail, and with them the commit.
	SetVersionstampedKey(key, value []byte)
	// SetVersionstampedValue does the same to the value.
	SetVersionstampedValue(key, value []byte)

	AddReadConflictRange(begin, end []byte)
	AddWriteConflictRange(begin, end []byte)

	// Watch starts a watch on key when this transaction commits (or ends, when it wrote nothing). It fires once the value
	// differs from what this transaction saw; it may fire late, and without cause. It reads key, which adds a read conflict.
	Watch(key []byte) Watch

	// ApproximateSize is the size of the commit so far, bytes.
	ApproximateSize() (int64, error)
}

// Watch outlives its transaction. A watch of a run of fn that was not committed ends with an error.
type Watch interface {
	// Wait returns nil when the watch fired. An error says that nothing more will come of it: read again and watch anew.
	Wait(ctx context.Context) error
	// Cancel frees the watch. It may be called more than once.
	Cancel()
}
