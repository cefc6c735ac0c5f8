package layer

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// ("inline", node, node_epoch, seq, chunk) holds a small segment in chunks of MaxChunk bytes, numbered from 0, raw.
//
// Written by PutInline; cleared by CommitPack and Adopt when the first live number passes the segment, and by FinishWAL.

// MaxChunk bounds one row of an inline segment, bytes.
const MaxChunk = 90_000

// MaxInlineSegment bounds an inline segment, bytes, so that its transaction stays under kv.TargetTransactionSize.
const MaxInlineSegment = 900_000

// InlineSegment is one segment that was stored in the database.
type InlineSegment struct {
	Seq  int64
	Data []byte
}

// PutInline stores a segment. Its one read is the node row, which fences it; it conflicts with nothing else. The same segment may be put again, with
// the same bytes.
func (s *Store) PutInline(ctx context.Context, node NodeRef, seq int64, segment []byte) error {
	if seq < FirstSegment || len(segment) == 0 || len(segment) > MaxInlineSegment {
		return invalid("inline segment %d of %d bytes, 1 to %d fit", seq, len(segment), MaxInlineSegment)
	}
	_, err := s.db.Transact(ctx, func(tr kv.Transaction) error {
		self := s.readNode(tr, node)
		for chunk := 0; chunk*MaxChunk < len(segment); chunk++ {
			part := segment[chunk*MaxChunk : min((chunk+1)*MaxChunk, len(segment))]
			tr.Set(s.key(spaceInline, node.ID, node.Epoch, seq, chunk), part)
		}
		if broken("fence") {
			return nil
		}
		return self.alive()
	})
	if err != nil {
		return fmt.Errorf("layer: put segment %d of %s: %w", seq, node, err)
	}
	return nil
}

// Rows per read of inline segments: how many at first, and at most once their size is known.
const (
	firstInlineRows = 16
	maxInlineRows   = 1000
)

// InlineSegments reads whole segments from a number on, in order, up to about limitBytes but at least one when there is one. Numbers that are missing are
// objects, or do not exist.
func (s *Store) InlineSegments(ctx context.Context, node NodeRef, from int64, limitBytes int) (segments []InlineSegment, err error) {
	err = s.read(ctx, fmt.Sprintf("read segments of %s from %d", node, from), func(tr kv.ReadTransaction) error {
		segments, err = s.inlineSegments(tr, node, from, limitBytes)
		return err
	})
	return segments, err
}

func (s *Store) inlineSegments(tr kv.ReadTransaction, node NodeRef, from int64, limitBytes int) ([]InlineSegment, error) {
	var segments []InlineSegment
	_, end := s.span(spaceInline, node.ID, node.Epoch)
	begin := s.key(spaceInline, node.ID, node.Epoch, from)
	size, rows, chunks := 0, 0, int64(0)
	for page := firstInlineRows; ; page = min(max(firstInlineRows, (limitBytes-size)*rows/max(size, 1)), maxInlineRows) {
		found, err := tr.GetRange(begin, end, kv.RangeOptions{Limit: page}).Get()
		if err != nil {
			return nil, err
		}
		for _, row := range found {
			ids, err := s.ints(row.Key, 4)
			if err != nil {
				return nil, err
			}
			seq, chunk := ids[2], ids[3]
			if next := len(segments) == 0 || segments[len(segments)-1].Seq != seq; next {
				if len(segments) > 0 && size >= limitBytes {
					return segments, nil
				}
				segments = append(segments, InlineSegment{Seq: seq})
				chunks = 0
			}
			if chunk != chunks {
				return nil, fmt.Errorf("%w: %s: chunk %d is missing", ErrCorruptRow, s.describe(row.Key), chunks)
			}
			last := &segments[len(segments)-1]
			last.Data = append(last.Data, row.Value...)
			size += len(row.Value)
			rows++
			chunks++
		}
		if len(found) < page {
			return segments, nil
		}
		begin = after(found[len(found)-1].Key)
	}
}
