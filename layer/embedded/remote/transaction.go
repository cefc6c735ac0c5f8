package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/varvedb/varve/layer/kv"
)

var errEnded = fmt.Errorf("transaction used after its function returned: %w", kv.ErrInvalid)

// transaction is one run of a function.
type transaction struct {
	db       *Database
	ctx      context.Context
	readOnly bool // reads need no conflict ranges

	mu      sync.Mutex // guards all below, and orders requests
	conn    *conn      // nil until the first request
	writes  []byte     // encoded, since the last request
	count   uint64     // of writes
	watches []*watch
	err     error // fails every later read and the commit
	between bool  // the server has ended the transaction
	ended   bool
}

var _ kv.Transaction = (*transaction)(nil)

// call sends the writes gathered so far and an operation, and gives the reply after its status.
func (t *transaction) call(op []byte) (*decoder, error) {
	switch {
	case t.ended:
		return nil, errEnded
	case t.err != nil:
		return nil, t.err
	case t.ctx.Err() != nil:
		return nil, fmt.Errorf("transaction interrupted: %w", t.ctx.Err())
	}
	if t.conn == nil {
		c, err := t.db.acquire(t.ctx)
		if err != nil {
			t.err = err
			return nil, err
		}
		t.conn = c
	}
	request := binary.AppendUvarint(nil, t.count)
	request = append(append(request, t.writes...), op...)
	t.writes, t.count = nil, 0
	reply, err := t.conn.roundTrip(t.ctx, request)
	d := &decoder{rest: reply}
	if err == nil {
		if err = d.status(); d.err == nil {
			return d, err
		}
	}
	if t.ctx.Err() != nil {
		t.db.discard(t.conn)
	} else {
		t.db.broken(t.conn)
	}
	t.conn = nil
	t.err = t.lost(op[0], err)
	return nil, t.err
}

// lost tells what the loss of the connection means.
func (t *transaction) lost(op byte, err error) error {
	cause := kv.ErrUnavailable
	if closed := t.db.usable(); closed != nil {
		cause = closed
	}
	if t.ctx.Err() != nil {
		cause = t.ctx.Err()
	}
	if op == opCommit {
		return fmt.Errorf("metadata server at %s was lost while committing: %w: %w: %w", t.db.path, kv.ErrCommitUnknown, cause, err)
	}
	return fmt.Errorf("metadata server at %s: %w: %w", t.db.path, cause, err)
}

// commit commits, and gives the connection to the watches if there are any.
func (t *transaction) commit() (kv.Commit, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil && t.count == 0 && t.err == nil && len(t.watches) == 0 {
		return kv.Commit{}, t.db.usable()
	}
	d, err := t.call([]byte{opCommit})
	t.between = true
	if err != nil {
		return kv.Commit{}, err
	}
	commit := kv.Commit{Version: int64(d.number())}
	copy(commit.Versionstamp[:], d.bytes())
	if err := d.end(); err != nil {
		return kv.Commit{}, fmt.Errorf("%w: answer to commit: %w", kv.ErrCommitUnknown, err)
	}
	if len(t.watches) > 0 {
		t.db.await(t.conn, t.watches)
		t.conn, t.watches = nil, nil
	}
	return commit, nil
}

// end gives the connection back; err is why the transaction was not committed, if it was not.
func (t *transaction) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, w := range t.watches {
		w.finish(fmt.Errorf("transaction of the watch on key %x not committed: %w", w.key, err))
	}
	if t.conn == nil {
		return
	}
	// The abort has no reply: the next transaction's first request follows it.
	if !t.between && writeFrame(t.conn, []byte{0, opAbort}) != nil {
		t.db.broken(t.conn)
		return
	}
	t.db.release(t.conn)
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

func (t *transaction) get(key []byte, snapshot bool) (r valueResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.err = checkSize(key, nil); r.err != nil {
		return r
	}
	d, err := t.call(appendBytes(binary.AppendUvarint([]byte{opGet}, flags(snapshot, false)), key))
	if err != nil {
		return valueResult{err: err}
	}
	present, value := d.byte(), d.bytes()
	if r.err = d.end(); r.err == nil && present != 0 {
		r.value = value
	}
	return r
}

func flags(snapshot, reverse bool) (f uint64) {
	if snapshot {
		f |= flagSnapshot
	}
	if reverse {
		f |= flagReverse
	}
	return f
}

func (t *transaction) GetRange(begin, end []byte, options kv.RangeOptions) kv.Range {
	return t.getRange(begin, end, options, t.readOnly)
}

func (t *transaction) getRange(begin, end []byte, options kv.RangeOptions, snapshot bool) (r rangeResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if options.Limit < 0 {
		return rangeResult{err: fmt.Errorf("range limit %d: %w", options.Limit, kv.ErrInvalid)}
	}
	if r.err = errors.Join(checkSize(begin, nil), checkSize(end, nil)); r.err != nil {
		return r
	}
	op := binary.AppendUvarint([]byte{opGetRange}, flags(snapshot, options.Reverse))
	op = binary.AppendUvarint(op, uint64(options.Limit))
	d, err := t.call(appendBytes(appendBytes(op, begin), end))
	if err != nil {
		return rangeResult{err: err}
	}
	for range d.number() {
		row := kv.KeyValue{Key: d.bytes(), Value: d.bytes()}
		if d.err != nil {
			break
		}
		r.rows = append(r.rows, row)
	}
	r.err = d.end()
	return r
}

func (t *transaction) Snapshot() kv.ReadTransaction { return snapshotReads{t} }

func (t *transaction) ReadVersion() (int64, error) { return t.number(opVersion) }

func (t *transaction) ApproximateSize() (int64, error) { return t.number(opSize) }

func (t *transaction) number(op byte) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, err := t.call([]byte{op})
	if err != nil {
		return 0, err
	}
	n := int64(d.number())
	return n, d.end()
}

// snapshotReads is a transaction whose reads add no conflict ranges.
type snapshotReads struct{ t *transaction }

func (s snapshotReads) Get(key []byte) kv.Value { return s.t.get(key, true) }

func (s snapshotReads) GetRange(begin, end []byte, options kv.RangeOptions) kv.Range {
	return s.t.getRange(begin, end, options, true)
}

func (s snapshotReads) Snapshot() kv.ReadTransaction { return s }

func (s snapshotReads) ReadVersion() (int64, error) { return s.t.ReadVersion() }

// slack is by how much keys and values may be over their limits before they are refused here: the engine knows the limits, and the bytes of a versionstamp's offset
// come on top of them.
const slack = 1000

func checkSize(key, value []byte) error {
	switch {
	case len(key) > kv.MaxKeySize+slack:
		return fmt.Errorf("key of %d bytes, at most %d: %w", len(key), kv.MaxKeySize, kv.ErrKeyTooLarge)
	case len(value) > kv.MaxValueSize+slack:
		return fmt.Errorf("value of %d bytes, at most %d: %w", len(value), kv.MaxValueSize, kv.ErrValueTooLarge)
	}
	return nil
}

// write gathers a write.
func (t *transaction) write(kind byte, first, second []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.err != nil {
		return
	}
	if kind == writeClearRange || kind == writeReadConflict || kind == writeWriteConflict {
		t.err = errors.Join(checkSize(first, nil), checkSize(second, nil))
	} else {
		t.err = checkSize(first, second)
	}
	if t.err != nil {
		return
	}
	t.writes = appendBytes(appendBytes(append(t.writes, kind), first), second)
	t.count++
	if len(t.writes) < flushAt {
		return
	}
	if _, err := t.call([]byte{opFlush}); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *transaction) Set(key, value []byte)        { t.write(writeSet, key, value) }
func (t *transaction) Clear(key []byte)             { t.write(writeClear, key, nil) }
func (t *transaction) ClearRange(begin, end []byte) { t.write(writeClearRange, begin, end) }
func (t *transaction) Add(key, param []byte)        { t.write(writeAdd, key, param) }

func (t *transaction) SetVersionstampedKey(key, value []byte) { t.write(writeStampedKey, key, value) }
func (t *transaction) SetVersionstampedValue(key, value []byte) {
	t.write(writeStampedValue, key, value)
}

func (t *transaction) AddReadConflictRange(begin, end []byte) {
	t.write(writeReadConflict, begin, end)
}

func (t *transaction) AddWriteConflictRange(begin, end []byte) {
	t.write(writeWriteConflict, begin, end)
}
