package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// maxAge is how long after its first read a transaction may go on, as in FoundationDB.
const maxAge = 5 * time.Second

// endOfKeys is the end of the key space: keys are below it, ends of ranges may be it.
var endOfKeys = []byte{0xff}

var errUnreadable = fmt.Errorf("a versionstamp that is set by the commit: %w", kv.ErrInvalid)

var errEnded = fmt.Errorf("transaction used after its function returned: %w", kv.ErrInvalid)

// transaction is one run of a Transact or ReadTransact function. Reads are done at once, so that they see the writes made before
// them and no later ones.
type transaction struct {
	db       *DB
	ctx      context.Context
	readOnly bool // reads need no conflict ranges

	mu        sync.Mutex // guards all below
	view      *view      // nil until the first read
	since     time.Time  // when view was taken
	own       ownWrites
	mutations []mutation
	reads     []keyRange // read conflict ranges
	writes    []keyRange // write conflict ranges beyond those of mutations
	size      int64      // of the commit, bytes
	watches   []*watch
	err       error // of a call that had no way to return it; fails every later read and the commit
	failed    error // of the first read over a versionstamp of its own, which fails the commit, too, as FoundationDB's does
	ended     bool
}

var _ kv.Transaction = (*transaction)(nil)

func (db *DB) begin(ctx context.Context, readOnly bool) *transaction {
	return &transaction{db: db, ctx: ctx, readOnly: readOnly}
}

// end releases what the transaction holds. Its reads fail from now on.
func (t *transaction) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.view != nil {
		t.db.release(t.view)
		t.view = nil
	}
}

// usable tells why a read or commit cannot be done now. It takes the read version if there is none yet.
func (t *transaction) usable() error {
	switch {
	case t.ended:
		return errEnded
	case t.err != nil:
		return t.err
	case t.ctx.Err() != nil:
		return fmt.Errorf("transaction interrupted: %w", t.ctx.Err())
	case t.view == nil:
		t.since = t.db.now()
		t.view = t.db.views.acquire()
		return nil
	}
	if age := t.db.now().Sub(t.since); age > maxAge {
		return fmt.Errorf("read version %d is %s old: %w", t.view.version, age, kv.ErrTooOld)
	}
	return nil
}

// read runs do at the read version, keeping the engine open meanwhile.
func (t *transaction) read(do func() error) error {
	if err := t.db.gate.enter(); err != nil {
		return err
	}
	defer t.db.gate.leave()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	return do()
}

type valueResult struct {
	value []byte
	err   error
}

func (r valueResult) Get() ([]byte, error) { return r.value, r.err }

type rangeResult struct {
	rows []kv.KeyValue
	err  error
}

func (r rangeResult) Get() ([]kv.KeyValue, error) { return r.rows, r.err }

func (t *transaction) Get(key []byte) kv.Value { return t.get(key, t.readOnly) }

func (t *transaction) GetRange(begin, end []byte, options kv.RangeOptions) kv.Range {
	return t.getRange(begin, end, options, t.readOnly)
}

func (t *transaction) Snapshot() kv.ReadTransaction { return snapshotReads{t} }

func (t *transaction) ReadVersion() (version int64, err error) {
	err = t.read(func() error {
		version = t.view.version
		return nil
	})
	return version, err
}

// snapshotReads is a transaction whose reads add no conflict ranges. They see its own writes all the same, as is FoundationDB's default.
type snapshotReads struct{ t *transaction }

func (s snapshotReads) Get(key []byte) kv.Value { return s.t.get(key, true) }

func (s snapshotReads) GetRange(begin, end []byte, options kv.RangeOptions) kv.Range {
	return s.t.getRange(begin, end, options, true)
}

func (s snapshotReads) Snapshot() kv.ReadTransaction { return s }

func (s snapshotReads) ReadVersion() (int64, error) { return s.t.ReadVersion() }

func (t *transaction) get(key []byte, snapshot bool) (r valueResult) {
	r.err = t.read(func() (err error) {
		r.value, err = t.lookup(key, snapshot)
		return t.noted(err)
	})
	return r
}

// noted keeps the error of a read that fails the commit, whether or not the function minds it.
func (t *transaction) noted(err error) error {
	if t.failed == nil && errors.Is(err, errUnreadable) {
		t.failed = err
	}
	return err
}

// lookup reads one key through the transaction's own writes.
func (t *transaction) lookup(key []byte, snapshot bool) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	e, own := t.own.entries[string(key)]
	switch {
	case own && e.unreadable, !own && t.own.isHidden(key):
		return nil, fmt.Errorf("key %x has %w", key, errUnreadable)
	case own && e.known:
		return slices.Clone(e.value), nil
	case !own && t.own.isCleared(key):
		return nil, nil
	}
	stored, err := t.view.get(key)
	if err != nil {
		return nil, err
	}
	if !snapshot {
		t.addRead(pointRange(key))
	}
	if own {
		return e.apply(stored), nil
	}
	return stored, nil
}

func (t *transaction) getRange(begin, end []byte, options kv.RangeOptions, snapshot bool) (r rangeResult) {
	r.err = t.read(func() (err error) {
		r.rows, err = t.lookupRange(keyRange{begin, end}, options, snapshot)
		return t.noted(err)
	})
	return r
}

func (t *transaction) lookupRange(rng keyRange, options kv.RangeOptions, snapshot bool) ([]kv.KeyValue, error) {
	if err := checkBounds(rng); err != nil {
		return nil, err
	}
	if options.Limit < 0 {
		return nil, fmt.Errorf("range limit %d: %w", options.Limit, kv.ErrInvalid)
	}
	if bytes.Compare(rng.begin, rng.end) >= 0 {
		return nil, nil // as FoundationDB does
	}
	rows, err := t.scan(rng, options)
	if err != nil {
		return nil, err
	}
	if !snapshot {
		t.addRead(t.covered(rng, options, rows))
	}
	return rows, nil
}

// covered is the part of rng that a read has looked at: all of it, or up to the last row when a limit ended it.
func (t *transaction) covered(rng keyRange, options kv.RangeOptions, rows []kv.KeyValue) keyRange {
	if t.db.options.UnsafeSkipPhantomChecks {
		// Only the rows that were seen: what the deliberate bug leaves out is the space between them.
		for _, row := range rows {
			t.addRead(pointRange(row.Key))
		}
		return keyRange{}
	}
	rng = keyRange{bytes.Clone(rng.begin), bytes.Clone(rng.end)}
	if options.Limit == 0 || len(rows) < options.Limit {
		return rng
	}
	last := pointRange(rows[len(rows)-1].Key)
	if options.Reverse {
		rng.begin = last.begin
	} else {
		rng.end = last.end
	}
	return rng
}

// scan merges the stored rows of rng with the transaction's own writes.
func (t *transaction) scan(rng keyRange, options kv.RangeOptions) ([]kv.KeyValue, error) {
	readable, cut := t.own.readable(rng, options.Reverse)
	m, err := t.merge(readable, options.Reverse)
	if err != nil {
		return nil, err
	}
	var found []kv.KeyValue
	for err == nil && (options.Limit == 0 || len(found) < options.Limit) {
		var row kv.KeyValue
		var ok bool
		if row, ok, err = m.next(); !ok {
			break
		}
		found = append(found, row)
	}
	if err := errors.Join(err, m.stored.close()); err != nil {
		return nil, fmt.Errorf("read range %x to %x: %w", rng.begin, rng.end, err)
	}
	if cut && (options.Limit == 0 || len(found) < options.Limit) {
		return nil, fmt.Errorf("range %x to %x has keys with %w", rng.begin, rng.end, errUnreadable)
	}
	return found, nil
}

func (t *transaction) addRead(rng keyRange) {
	if t.readOnly || bytes.Compare(rng.begin, rng.end) >= 0 {
		return
	}
	t.reads = append(t.reads, rng)
	t.grow(rng.size())
}

func (r keyRange) size() int { return len(r.begin) + len(r.end) }

// grow counts bytes of the commit.
func (t *transaction) grow(n int) {
	t.size += int64(n)
	if t.size > kv.MaxTransactionSize {
		t.fail(fmt.Errorf("%d bytes of at most %d: %w", t.size, kv.MaxTransactionSize, kv.ErrTransactionTooLarge))
	}
}

// fail keeps the first error of a call that cannot return it.
func (t *transaction) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// write notes a write after checking it; mutate applies it to the transaction's own picture.
func (t *transaction) write(check error, m mutation, mutate func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended, t.err != nil: // of a transaction that ended there is nobody to tell
		return
	case check != nil:
		t.fail(check)
		return
	}
	t.mutations = append(t.mutations, m)
	// The row itself and its write conflict range.
	t.grow(len(m.key) + len(m.param))
	if m.kind == mutationClearRange {
		t.grow(len(m.key) + len(m.param))
	} else {
		t.grow(2*len(m.key) + 1)
	}
	mutate()
}

func (t *transaction) Set(key, value []byte) {
	key, value = bytes.Clone(key), cloneValue(value)
	t.write(errors.Join(checkKey(key), checkValue(value)), mutation{kind: mutationSet, key: key, param: value}, func() { t.own.set(key, value) })
}

func (t *transaction) Clear(key []byte) {
	key = bytes.Clone(key)
	t.write(checkKey(key), mutation{kind: mutationClear, key: key}, func() { t.own.clear(key) })
}

func (t *transaction) ClearRange(begin, end []byte) {
	rng := keyRange{bytes.Clone(begin), bytes.Clone(end)}
	t.write(checkOrderedRange(rng), mutation{kind: mutationClearRange, key: rng.begin, param: rng.end}, func() { t.own.clearRange(rng) })
}

func (t *transaction) Add(key, param []byte) {
	key, param = bytes.Clone(key), cloneValue(param)
	t.write(errors.Join(checkKey(key), checkValue(param)), mutation{kind: mutationAdd, key: key, param: param}, func() { t.own.add(key, param) })
}

func (t *transaction) SetVersionstampedKey(key, value []byte) {
	full := len(key) // the offset counts as a part of the key, as in FoundationDB
	key, offset, err := cutStampOffset(bytes.Clone(key))
	value = cloneValue(value)
	m := mutation{kind: mutationStampedKey, key: key, param: value, offset: offset}
	t.write(errors.Join(err, checkKey(key), checkKeySize(full), checkValue(value)), m, func() {
		var lowest kv.Versionstamp
		if t.view != nil {
			lowest = stampOf(t.view.version)
		}
		t.own.hideKeys(key, offset, lowest)
	})
}

func (t *transaction) SetVersionstampedValue(key, value []byte) {
	key = bytes.Clone(key)
	full := len(value)
	value, offset, err := cutStampOffset(bytes.Clone(value))
	m := mutation{kind: mutationStampedValue, key: key, param: value, offset: offset}
	t.write(errors.Join(err, checkKey(key), checkValueSize(full)), m, func() { t.own.hideValue(key) })
}

func (t *transaction) AddReadConflictRange(begin, end []byte) {
	t.addConflict(keyRange{begin, end}, &t.reads)
}

func (t *transaction) AddWriteConflictRange(begin, end []byte) {
	t.addConflict(keyRange{begin, end}, &t.writes)
}

func (t *transaction) addConflict(rng keyRange, to *[]keyRange) {
	rng = keyRange{bytes.Clone(rng.begin), bytes.Clone(rng.end)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := checkOrderedRange(rng); err != nil {
		t.fail(err)
		return
	}
	if !t.ended && bytes.Compare(rng.begin, rng.end) < 0 {
		*to = append(*to, rng)
		t.grow(rng.size())
	}
}

func (t *transaction) ApproximateSize() (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size, t.err
}

// cloneValue copies a value; the copy is never nil, since an empty value is a value.
func cloneValue(value []byte) []byte {
	return append(make([]byte, 0, len(value)), value...)
}

func checkKey(key []byte) error {
	if err := checkKeySize(len(key)); err != nil {
		return err
	}
	if bytes.Compare(key, endOfKeys) >= 0 {
		return fmt.Errorf("key %x is in the system key space: %w", key, kv.ErrInvalid)
	}
	return nil
}

func checkKeySize(n int) error {
	if n > kv.MaxKeySize {
		return fmt.Errorf("key of %d bytes, at most %d: %w", n, kv.MaxKeySize, kv.ErrKeyTooLarge)
	}
	return nil
}

func checkValue(value []byte) error { return checkValueSize(len(value)) }

func checkValueSize(n int) error {
	if n > kv.MaxValueSize {
		return fmt.Errorf("value of %d bytes, at most %d: %w", n, kv.MaxValueSize, kv.ErrValueTooLarge)
	}
	return nil
}

// checkBounds checks the ends of a range that is read.
func checkBounds(rng keyRange) error {
	if bytes.Compare(rng.begin, endOfKeys) > 0 || bytes.Compare(rng.end, endOfKeys) > 0 {
		return fmt.Errorf("range %x to %x reaches into the system key space: %w", rng.begin, rng.end, kv.ErrInvalid)
	}
	// One byte more is what the end of a range over the longest key has.
	if n := max(len(rng.begin), len(rng.end)); n > kv.MaxKeySize+1 {
		return fmt.Errorf("range with an end of %d bytes, at most %d: %w", n, kv.MaxKeySize, kv.ErrKeyTooLarge)
	}
	return nil
}

// checkOrderedRange checks a range that is written or declared.
func checkOrderedRange(rng keyRange) error {
	if bytes.Compare(rng.begin, rng.end) > 0 {
		return fmt.Errorf("range from %x to %x is inverted: %w", rng.begin, rng.end, kv.ErrInvalid)
	}
	return checkBounds(rng)
}
