package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/varvedb/varve/layer/embedded/internal/watching"
	"github.com/varvedb/varve/layer/kv"
)

var errEnded = fmt.Errorf("transaction used after its function returned: %w", kv.ErrInvalid)

// transaction is one run of a function.
type transaction struct {
	db       *Database
	ctx      context.Context
	readOnly bool // reads need no conflict ranges

	mu      sync.Mutex // guards all below, and orders requests; no reply is waited for with it, but that of the commit
	conn    *conn      // nil until the first request
	release func() bool
	writes  []byte // encoded, since the last request
	count   uint64 // of writes
	watches []*watching.Watch
	err     error // fails every later read and the commit
	between bool  // the server has ended the transaction
	ended   bool
}

var _ kv.Transaction = (*transaction)(nil)

// start sends the writes gathered so far and an operation. An error says that it was not sent, and no later one will be.
func (t *transaction) start(op []byte) (*pending, error) {
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
		// Whatever waits for the connection goes on when ctx ends.
		t.conn, t.release = c, context.AfterFunc(t.ctx, func() { c.Close() })
	}
	request := binary.AppendUvarint(nil, t.count)
	request = append(append(request, t.writes...), op...)
	t.writes, t.count = nil, 0
	r, err := t.conn.send(request)
	if err != nil {
		t.err = t.lost(err)
		return nil, t.err
	}
	return &pending{t: t, conn: t.conn, reply: r}, nil
}

// pending is a request that was sent.
type pending struct {
	t     *transaction
	conn  *conn
	reply *reply
}

// get waits for the reply and gives it after its status. lost tells whether the connection was, so that the request may or may not have been done.
func (p *pending) get() (d *decoder, lost bool, err error) {
	<-p.reply.done
	err = p.reply.err
	if err == nil {
		d = &decoder{rest: p.reply.body}
		if err = d.status(); d.err == nil {
			return d, false, err
		}
		p.conn.fail(err) // it does not speak the protocol
	}
	return nil, true, p.t.lost(err)
}

// malformed tells whether a reply that was read has anything else in it.
func (p *pending) malformed(d *decoder) error {
	err := d.end()
	if err == nil {
		return nil
	}
	p.conn.fail(err)
	return p.t.lost(err)
}

// lost tells what the loss of the connection means.
func (t *transaction) lost(err error) error {
	cause := kv.ErrUnavailable
	if closed := t.db.usable(); closed != nil {
		cause = closed
	}
	if t.ctx.Err() != nil {
		cause = t.ctx.Err()
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
	watches := t.watches
	if t.conn != nil && len(watches) > 0 {
		t.conn.watch(func(frame []byte) error { return tell(watches, frame) })
	}
	p, err := t.start([]byte{opCommit})
	if err != nil {
		return kv.Commit{}, err
	}
	commit, err := p.commit()
	t.between = true
	switch {
	case len(watches) == 0:
	case err != nil:
		t.conn.watch(nil)
	default:
		t.release()
		t.db.await(t.conn, watches)
		t.conn, t.watches = nil, nil
	}
	return commit, err
}

// commit waits for the reply to a commit.
func (p *pending) commit() (commit kv.Commit, err error) {
	d, lost, err := p.get()
	if err == nil {
		commit.Version = int64(d.number())
		copy(commit.Versionstamp[:], d.bytes())
		err = p.malformed(d)
		lost = err != nil
	}
	switch {
	case lost:
		return kv.Commit{}, fmt.Errorf("lost while committing: %w: %w", kv.ErrCommitUnknown, err)
	case err != nil:
		return kv.Commit{}, err
	}
	return commit, nil
}

// end gives the connection back; err is why the transaction was not committed, if it was not. Replies to reads that nobody waited for may be still on their way.
func (t *transaction) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, w := range t.watches {
		w.NotCommitted(err)
	}
	if t.conn == nil {
		return
	}
	// The abort has no reply: the next transaction's first request follows it.
	if !t.between {
		if err := writeFrame(t.conn, []byte{0, opAbort}); err != nil {
			t.conn.fail(err)
		}
	}
	if !t.release() || t.conn.failure() != nil {
		t.conn.Close()
		return
	}
	t.db.release(t.conn)
}

// value is a read of one key under way.
type value struct {
	read func() ([]byte, error) // once
}

func (v value) Get() ([]byte, error) { return v.read() }

// rows is a range read under way.
type rows struct {
	read func() ([]kv.KeyValue, error) // once
}

func (r rows) Get() ([]kv.KeyValue, error) { return r.read() }

func (t *transaction) Get(key []byte) kv.Value { return t.get(key, t.readOnly) }

func (t *transaction) get(key []byte, snapshot bool) kv.Value {
	t.mu.Lock()
	defer t.mu.Unlock()
	var p *pending
	err := checkSize(key, nil)
	if err == nil {
		p, err = t.start(appendBytes(binary.AppendUvarint([]byte{opGet}, flags(snapshot, false)), key))
	}
	if err != nil {
		return value{func() ([]byte, error) { return nil, err }}
	}
	return value{sync.OnceValues(p.value)}
}

// value waits for the reply to opGet.
func (p *pending) value() ([]byte, error) {
	d, _, err := p.get()
	if err != nil {
		return nil, err
	}
	present, value := d.byte(), d.bytes()
	if err := p.malformed(d); err != nil || present == 0 {
		return nil, err
	}
	return value, nil
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

func (t *transaction) getRange(begin, end []byte, options kv.RangeOptions, snapshot bool) kv.Range {
	t.mu.Lock()
	defer t.mu.Unlock()
	var p *pending
	err := errors.Join(checkSize(begin, nil), checkSize(end, nil))
	if options.Limit < 0 {
		err = fmt.Errorf("range limit %d: %w", options.Limit, kv.ErrInvalid)
	}
	if err == nil {
		op := binary.AppendUvarint([]byte{opGetRange}, flags(snapshot, options.Reverse))
		op = binary.AppendUvarint(op, uint64(options.Limit))
		p, err = t.start(appendBytes(appendBytes(op, begin), end))
	}
	if err != nil {
		return rows{func() ([]kv.KeyValue, error) { return nil, err }}
	}
	return rows{sync.OnceValues(p.rows)}
}

// rows waits for the reply to opGetRange.
func (p *pending) rows() (found []kv.KeyValue, err error) {
	d, _, err := p.get()
	if err != nil {
		return nil, err
	}
	for range d.number() {
		row := kv.KeyValue{Key: d.bytes(), Value: d.bytes()}
		if d.err != nil {
			break
		}
		found = append(found, row)
	}
	if err := p.malformed(d); err != nil {
		return nil, err
	}
	return found, nil
}

func (t *transaction) Snapshot() kv.ReadTransaction { return snapshotReads{t} }

func (t *transaction) ReadVersion() (int64, error) { return t.number(opVersion) }

func (t *transaction) ApproximateSize() (int64, error) { return t.number(opSize) }

func (t *transaction) number(op byte) (int64, error) {
	t.mu.Lock()
	p, err := t.start([]byte{op})
	t.mu.Unlock()
	if err != nil {
		return 0, err
	}
	d, _, err := p.get()
	if err != nil {
		return 0, err
	}
	n := int64(d.number())
	return n, p.malformed(d)
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
	// Its reply is not waited for; it counts as outstanding all the same, so that a server that is behind holds the client up.
	if _, err := t.start([]byte{opFlush}); err != nil && t.err == nil {
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
