package kv

import (
	"bytes"
	"context"
	"encoding/binary"
)

// PrefixedDatabase is a part of another database as a database of its own; see Prefixed.
type PrefixedDatabase struct {
	inner  Database
	prefix []byte
}

// Prefixed gives the rows of db whose keys begin with prefix as a database whose keys lack it. Keys that are invalid
// in a whole database are invalid in it too; the longest key is shorter by the prefix. Closing it does not close db.
func Prefixed(db Database, prefix []byte) *PrefixedDatabase {
	return &PrefixedDatabase{inner: db, prefix: bytes.Clone(prefix)}
}

// Prefix is what its keys lack.
func (p *PrefixedDatabase) Prefix() []byte { return bytes.Clone(p.prefix) }

// MaxKeySizeOf is the size of the longest key that db takes, bytes: MaxKeySize less the prefixes that db adds.
func MaxKeySizeOf(db Database) int {
	size := MaxKeySize
	for {
		switch d := db.(type) {
		case *PrefixedDatabase:
			size -= len(d.prefix)
			db = d.inner
		case interface{ Unwrap() Database }:
			db = d.Unwrap()
		default:
			return size
		}
	}
}

// Transact implements Database.
func (p *PrefixedDatabase) Transact(ctx context.Context, fn func(Transaction) error) (Commit, error) {
	return p.inner.Transact(ctx, func(tx Transaction) error {
		return fn(prefixedTransaction{prefixedReads{tx, p.prefix}, tx})
	})
}

// ReadTransact implements Database.
func (p *PrefixedDatabase) ReadTransact(ctx context.Context, fn func(ReadTransaction) error) error {
	return p.inner.ReadTransact(ctx, func(tx ReadTransaction) error {
		return fn(prefixedReads{tx, p.prefix})
	})
}

// Close does nothing: the database underneath belongs to whoever opened it.
func (p *PrefixedDatabase) Close() error { return nil }

// endOfKeys is the end of the key space: keys are below it, ends of ranges may be it.
var endOfKeys = []byte{0xff}

type prefixedReads struct {
	inner  ReadTransaction
	prefix []byte
}

// key maps a key. One outside the key space stays as it is, so that the engine refuses it.
func (r prefixedReads) key(key []byte) []byte {
	if bytes.Compare(key, endOfKeys) >= 0 {
		return key
	}
	return r.join(key)
}

// bound maps an end of a range, which may be the end of the key space.
func (r prefixedReads) bound(key []byte) []byte {
	if bytes.Compare(key, endOfKeys) > 0 {
		return key
	}
	return r.join(key)
}

func (r prefixedReads) join(key []byte) []byte {
	return append(r.prefix[:len(r.prefix):len(r.prefix)], key...)
}

func (r prefixedReads) Get(key []byte) Value { return r.inner.Get(r.key(key)) }

func (r prefixedReads) GetRange(begin, end []byte, options RangeOptions) Range {
	return prefixedRange{r.inner.GetRange(r.bound(begin), r.bound(end), options), len(r.prefix)}
}

func (r prefixedReads) Snapshot() ReadTransaction {
	return prefixedReads{r.inner.Snapshot(), r.prefix}
}

func (r prefixedReads) ReadVersion() (int64, error) { return r.inner.ReadVersion() }

type prefixedRange struct {
	inner  Range
	prefix int
}

func (r prefixedRange) Get() ([]KeyValue, error) {
	rows, err := r.inner.Get()
	if err != nil {
		return nil, err
	}
	out := make([]KeyValue, len(rows)) // the inner rows may be given out again
	for i, row := range rows {
		out[i] = KeyValue{Key: row.Key[r.prefix:], Value: row.Value}
	}
	return out, nil
}

type prefixedTransaction struct {
	prefixedReads
	tx Transaction
}

func (t prefixedTransaction) Set(key, value []byte) { t.tx.Set(t.key(key), value) }

func (t prefixedTransaction) Clear(key []byte) { t.tx.Clear(t.key(key)) }

func (t prefixedTransaction) ClearRange(begin, end []byte) {
	t.tx.ClearRange(t.bound(begin), t.bound(end))
}

func (t prefixedTransaction) Add(key, param []byte) { t.tx.Add(t.key(key), param) }

// SetVersionstampedKey moves the offset along with the key.
func (t prefixedTransaction) SetVersionstampedKey(key, value []byte) {
	const offsetSize = 4
	if len(key) < offsetSize {
		t.tx.SetVersionstampedKey(key, value) // the engine refuses it
		return
	}
	rest := key[:len(key)-offsetSize]
	at := uint64(binary.LittleEndian.Uint32(key[len(rest):]))
	if at+uint64(len(Versionstamp{})) > uint64(len(rest)) || bytes.Compare(rest, endOfKeys) >= 0 {
		t.tx.SetVersionstampedKey(nil, value) // the same: the moved offset might make it valid
		return
	}
	t.tx.SetVersionstampedKey(binary.LittleEndian.AppendUint32(t.join(rest), uint32(at)+uint32(len(t.prefix))), value)
}

func (t prefixedTransaction) SetVersionstampedValue(key, value []byte) {
	t.tx.SetVersionstampedValue(t.key(key), value)
}

func (t prefixedTransaction) AddReadConflictRange(begin, end []byte) {
	t.tx.AddReadConflictRange(t.bound(begin), t.bound(end))
}

func (t prefixedTransaction) AddWriteConflictRange(begin, end []byte) {
	t.tx.AddWriteConflictRange(t.bound(begin), t.bound(end))
}

func (t prefixedTransaction) Watch(key []byte) Watch { return t.tx.Watch(t.key(key)) }

func (t prefixedTransaction) ApproximateSize() (int64, error) { return t.tx.ApproximateSize() }
