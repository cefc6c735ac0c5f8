package layer

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// ObjectEntry is ("object", stream, end): the object that holds a stream's records at offsets [Base, End). A stream's entries follow one another without gap or
// overlap up to its durable end. Binary:
//
//	1 byte     version, 1
//	uvarint    Base
//	uvarint    Pos, Len
//	uvarint    IndexPos, IndexLen
//	varint     MaxTimestamp
//	uvarint    Records
//	uvarint n  length of Object, then its n bytes
//
// Written by CommitPack, Adopt and MergeEntries; cleared by MergeEntries, TrimStream and DestroyStreams.
type ObjectEntry struct {
	Stream, Base, End  int64
	Object             string // key in the object store
	Pos, Len           int64  // where the stream's blocks lie in the object, bytes
	IndexPos, IndexLen int64  // where the stream's block index lies, bytes
	MaxTimestamp       int64  // ms
	Records            int64
}

// MaxObjectKey bounds the key of an object, bytes.
const MaxObjectKey = 1024

const entryVersion = 1

func (e ObjectEntry) validate() error {
	if e.Stream < 1 || e.Base < 0 || e.End <= e.Base || e.Pos < 0 || e.Len < 0 || e.IndexPos < 0 || e.IndexLen < 0 || e.Records < 0 {
		return invalid("index entry %+v", e)
	}
	if e.Object == "" || len(e.Object) > MaxObjectKey {
		return invalid("index entry of stream %d: object key of %d bytes, 1 to %d fit", e.Stream, len(e.Object), MaxObjectKey)
	}
	return nil
}

func encodeEntry(e ObjectEntry) []byte {
	b := make([]byte, 0, 48+len(e.Object))
	b = append(b, entryVersion)
	for _, v := range []int64{e.Base, e.Pos, e.Len, e.IndexPos, e.IndexLen} {
		b = binary.AppendUvarint(b, uint64(v))
	}
	b = binary.AppendVarint(b, e.MaxTimestamp)
	b = binary.AppendUvarint(b, uint64(e.Records))
	b = binary.AppendUvarint(b, uint64(len(e.Object)))
	return append(b, e.Object...)
}

func (s *Store) decodeEntry(key, value []byte) (ObjectEntry, error) {
	ids, err := s.ints(key, 2)
	if err != nil {
		return ObjectEntry{}, err
	}
	e := ObjectEntry{Stream: ids[0], End: ids[1]}
	d := rowDecoder{buf: value}
	d.version(entryVersion)
	for _, field := range []*int64{&e.Base, &e.Pos, &e.Len, &e.IndexPos, &e.IndexLen} {
		*field = d.uvarint()
	}
	e.MaxTimestamp = d.varint()
	e.Records = d.uvarint()
	e.Object = string(d.bytes(MaxObjectKey))
	d.finish()
	if d.err == nil {
		d.err = e.validate()
	}
	if d.err != nil {
		return ObjectEntry{}, fmt.Errorf("%w: %s: %w", ErrCorruptRow, s.describe(key), d.err)
	}
	return e, nil
}

func (t *tx) setEntry(e ObjectEntry) { t.Set(t.s.key(spaceObject, e.Stream, e.End), encodeEntry(e)) }

func (t *tx) clearEntry(e ObjectEntry) { t.Clear(t.s.key(spaceObject, e.Stream, e.End)) }

func (s *Store) decodeEntries(r kv.Range) ([]ObjectEntry, error) {
	rows, err := r.Get()
	if err != nil {
		return nil, err
	}
	entries := make([]ObjectEntry, len(rows))
	for i, row := range rows {
		if entries[i], err = s.decodeEntry(row.Key, row.Value); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// lastRead is a stream's last index entry that is being read.
type lastRead struct {
	s *Store
	r kv.Range
}

func (s *Store) readLast(tr kv.ReadTransaction, stream int64) lastRead {
	begin, end := s.span(spaceObject, stream)
	return lastRead{s: s, r: tr.GetRange(begin, end, kv.RangeOptions{Limit: 1, Reverse: true})}
}

func (t *tx) lastEntry(stream int64) lastRead { return t.s.readLast(t, stream) }

func (r lastRead) get() (ObjectEntry, bool, error) {
	entries, err := r.s.decodeEntries(r.r)
	if err != nil || len(entries) == 0 {
		return ObjectEntry{}, false, err
	}
	return entries[0], true, nil
}

// durableEnd waits, and gives the offset up to which the index knows the records of the stream.
func (r lastRead) durableEnd(row StreamRow) (int64, error) {
	last, _, err := r.get()
	return max(row.Start, last.End), err
}

// ObjectEntries reads up to limit entries of a stream from the first one with End > from on.
func (s *Store) ObjectEntries(ctx context.Context, stream, from int64, limit int) (entries []ObjectEntry, err error) {
	err = s.read(ctx, fmt.Sprintf("read index of stream %d", stream), func(tr kv.ReadTransaction) error {
		_, end := s.span(spaceObject, stream)
		entries, err = s.decodeEntries(tr.GetRange(s.key(spaceObject, stream, from+1), end, kv.RangeOptions{Limit: limit}))
		return err
	})
	return entries, err
}

// LastEntry reads a stream's last entry; false when it has none.
func (s *Store) LastEntry(ctx context.Context, stream int64) (e ObjectEntry, ok bool, err error) {
	err = s.read(ctx, fmt.Sprintf("read last entry of stream %d", stream), func(tr kv.ReadTransaction) error {
		e, ok, err = s.readLast(tr, stream).get()
		return err
	})
	return e, ok, err
}

// DurableEnd reads the offset up to which the index knows a stream's records. ErrStreamNotFound.
func (s *Store) DurableEnd(ctx context.Context, stream int64) (end int64, err error) {
	err = s.read(ctx, fmt.Sprintf("read durable end of stream %d", stream), func(tr kv.ReadTransaction) error {
		read, last := s.readStream(tr, stream), s.readLast(tr, stream)
		row, err := read.live()
		if err != nil {
			return err
		}
		end, err = last.durableEnd(row)
		return err
	})
	return end, err
}
