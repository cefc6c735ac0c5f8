package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvedb/varve/nodes/batch"
)

// WriterSeqHeader is the header of a batch's last record that keeps the append's WriterSeq. The caller puts it there when it builds the
// batch; after a restart or a move the engine finds it in the stream's last record.
const WriterSeqHeader = "varve-writer-seq"

// ErrWriterSeq: the append's WriterSeq does not follow that of the append before. errors.As gives *WriterSeqError. Not retryable.
var ErrWriterSeq = errors.New("writer sequence does not increase")

// WriterSeqError tells both sequences.
type WriterSeqError struct {
	Stream    int64
	Last, Got string
}

// Error names the stream and both values.
func (e *WriterSeqError) Error() string {
	return fmt.Sprintf("writer sequence %.64q does not follow %.64q on stream %d", e.Got, e.Last, e.Stream)
}

// Is makes errors.Is(err, ErrWriterSeq) true.
func (e *WriterSeqError) Is(target error) bool { return target == ErrWriterSeq }

// writerSeq is the last WriterSeq of a stream (Durable Streams protocol, Stream-Seq). Guarded by the stream's mu. It is looked up in
// the last record when it is first needed.
type writerSeq struct {
	known bool
	last  string // "" when the last append had none
}

// loadWriterSeq finds the WriterSeq of the stream's last record.
func (s *Stream) loadWriterSeq(ctx context.Context) error {
	s.mu.Lock()
	known, start, end, next := s.writer.known, s.start, s.end, s.next
	s.mu.Unlock()
	if known {
		return nil
	}
	last := ""
	if end > start {
		found, err := s.Read(ctx, Read{Offset: end - 1, MinOneBatch: true})
		if err != nil {
			return fmt.Errorf("look up the last writer sequence: %w", err)
		}
		if last, err = writerSeqOf(found.Batches); err != nil {
			return fmt.Errorf("writer sequence of the record at offset %d of stream %d: %w", end-1, s.id, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.writer.known:
	case s.next != next:
		return fmt.Errorf("%w: %v got records while its last writer sequence was looked up", ErrUnavailable, s)
	default:
		s.writer = writerSeq{known: true, last: last}
	}
	return nil
}

// writerSeqOf is the header of the last record of the last batch.
func writerSeqOf(batches [][]byte) (string, error) {
	if len(batches) == 0 {
		return "", nil
	}
	b, _, err := batch.Next(batches[len(batches)-1])
	if err != nil {
		return "", err
	}
	last := ""
	for record, err := range b.All(maxDecompressed) {
		if err != nil {
			return "", err
		}
		last = ""
		for _, h := range record.Headers {
			if h.Key == WriterSeqHeader {
				last = string(h.Value)
			}
		}
	}
	return last, nil
}

// checkWriterSeq refuses a WriterSeq that does not follow the last one. Call with mu held.
func (s *Stream) checkWriterSeq(got string) error {
	switch {
	case got == "":
		return nil
	case !s.writer.known:
		return fmt.Errorf("%w: an append with a writer sequence goes through Append or EndStream", ErrInvalid)
	case got <= s.writer.last:
		return &WriterSeqError{Stream: s.id, Last: s.writer.last, Got: got}
	}
	return nil
}
