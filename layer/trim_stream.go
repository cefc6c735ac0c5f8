package layer

import (
	"context"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// TrimStream moves the start of a stream that by has open at epoch, and clears index entries wholly below it; objects that lose their last reference
// are queued for destruction. A start beyond the durable end is cut to it, and one below the present start changes nothing: the row that is returned tells.
// The start moves at once; more says that entries are left below it: call again.
func (s *Store) TrimStream(ctx context.Context, by NodeRef, stream, epoch, start int64) (row StreamRow, more bool, err error) {
	now := s.now()
	err = s.transact(ctx, fmt.Sprintf("trim stream %d", stream), by, func(t *tx) error {
		self, read := t.node(by), t.stream(stream)
		begin, end := s.span(spaceObject, stream)
		first := t.GetRange(begin, end, kv.RangeOptions{Limit: s.bounds.trimEntries + 1})
		if err := self.alive(); err != nil {
			return err
		}
		if row, err = read.openBy(by, epoch); err != nil {
			return err
		}
		entries, err := s.decodeEntries(first)
		if err != nil {
			return err
		}
		to, err := t.trimTo(row, entries, start)
		if err != nil {
			return err
		}
		if to > row.Start {
			old := row
			row.Start = to
			t.setStream(old, row)
		}
		more, err = t.clearBelow(entries, row.Start, now)
		return err
	})
	return row, more, err
}

// trimTo cuts a wanted start to the durable end, given the first entries. The last entry is read only where the first do not reach, since
// that read conflicts with every pack of the stream.
func (t *tx) trimTo(row StreamRow, first []ObjectEntry, start int64) (int64, error) {
	if start <= row.Start || len(first) > 0 && first[len(first)-1].End >= start {
		return start, nil
	}
	durable, err := t.lastEntry(row.ID).durableEnd(row)
	return min(start, durable), err
}

// clearBelow clears those of the first entries that end at or below start, as many as one transaction may; more when the next one does, too.
func (t *tx) clearBelow(entries []ObjectEntry, start int64, at time.Time) (more bool, err error) {
	below := 0
	for below < len(entries) && entries[below].End <= start {
		below++
	}
	more = below > t.s.bounds.trimEntries
	return more, t.dropEntries(entries[:min(below, t.s.bounds.trimEntries)], "trimmed", at)
}

// dropEntries clears index entries and their references.
func (t *tx) dropEntries(entries []ObjectEntry, reason string, at time.Time) error {
	refs := t.references()
	for _, e := range entries {
		refs.load(e.Object)
	}
	if err := refs.wait(); err != nil {
		return err
	}
	for _, e := range entries {
		t.clearEntry(e)
		if err := refs.drop(e.Object, 1); err != nil {
			return err
		}
	}
	return refs.flush(reason, at)
}
