package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
)

// Failures that callers branch on. Wrapped ones carry more: see ProducerError, EndedError, OffsetOutOfRange, MissingObjectError and
// segment.CorruptError.
var (
	// ErrOutOfOrderSequence: the sequence does not follow the producer's last one. Kafka: 45. Not retryable.
	ErrOutOfOrderSequence = errors.New("out of order sequence")
	// ErrDuplicateTooOld: the batch was appended before, and so many batches ago that its offsets are no longer known. Kafka: 46.
	ErrDuplicateTooOld = errors.New("duplicate of a batch that is no longer remembered")
	// ErrInvalidProducerEpoch: a newer instance of the producer has appended. Kafka: 47. Not retryable.
	ErrInvalidProducerEpoch = errors.New("producer epoch is fenced")
	// ErrEnded: the stream was ended for ever, no record follows. errors.As gives *EndedError.
	ErrEnded = errors.New("stream has ended")
	// ErrNotOpen: the stream is not open here: it is being closed or moved. Retryable, after asking the node again.
	ErrNotOpen = errors.New("stream is not open here")
	// ErrBacklogFull: what was appended and not yet packed is at its bound, and no room came in time. Retryable.
	ErrBacklogFull = errors.New("write-ahead log backlog is full")
	// ErrTimeout: the caller's context ended before the append was durable. It may still become durable: a retry without a producer
	// can be a second record.
	ErrTimeout = errors.New("append is not yet durable")
	// ErrUnavailable: the metadata or the object store cannot be reached now. Retryable.
	ErrUnavailable = errors.New("storage is unavailable")
	// ErrFenced: this node epoch is fenced, or its log failed for good. It will never acknowledge again.
	ErrFenced = errors.New("node epoch is fenced")
	// ErrInvalid: the call makes no sense: an append without a batch, a batch without records. Not retryable.
	ErrInvalid = errors.New("invalid request")
)

// ProducerError is a refusal of a producer's append, with what the producer needs to know to go on. It is one of ErrOutOfOrderSequence,
// ErrDuplicateTooOld and ErrInvalidProducerEpoch (errors.Is).
type ProducerError struct {
	Kind     error
	Producer int64
	Epoch    int64 // the producer's current epoch on this stream; -1 when it is not known here
	Expected int64 // the sequence that would be accepted at Epoch
	GotEpoch int64
	GotSeq   int64 // first sequence of the refused append
}

// Error names the producer and both sides' values.
func (e *ProducerError) Error() string {
	return fmt.Sprintf("producer %d: %v: got epoch %d sequence %d, the stream is at epoch %d and expects sequence %d",
		e.Producer, e.Kind, e.GotEpoch, e.GotSeq, e.Epoch, e.Expected)
}

// Unwrap gives the kind.
func (e *ProducerError) Unwrap() error { return e.Kind }

// EndedError says where the stream ended.
type EndedError struct {
	Stream int64
	End    int64 // the offset at which no record follows
}

// Error names the stream and its end.
func (e *EndedError) Error() string {
	return fmt.Sprintf("stream %d has ended at offset %d", e.Stream, e.End)
}

// Is makes errors.Is(err, ErrEnded) true.
func (e *EndedError) Is(target error) bool { return target == ErrEnded }

// OffsetOutOfRange is the refusal of an offset that the stream does not have: below Start or above End.
type OffsetOutOfRange struct {
	Stream, Offset int64
	Start, End     int64 // the offsets that could be asked for, both inclusive
}

// Error names the offset and the range.
func (e *OffsetOutOfRange) Error() string {
	return fmt.Sprintf("offset %d of stream %d is out of range [%d, %d]", e.Offset, e.Stream, e.Start, e.End)
}

// MissingObjectError says that the index names an object that the store does not have. Nothing is deleted or changed because of it.
type MissingObjectError struct {
	Stream, Offset int64
	Object         string
}

// Error names the object and what is lost with it.
func (e *MissingObjectError) Error() string {
	return fmt.Sprintf("object %s, which holds offset %d of stream %d, is missing from the object store", e.Object, e.Offset, e.Stream)
}

// terminal tells whether err says that this node epoch is over.
func terminal(err error) bool {
	return errors.Is(err, layer.ErrFenced) || errors.Is(err, layer.ErrReplaced) || errors.Is(err, ErrFenced)
}

// fenced makes err an ErrFenced.
func fenced(err error) error {
	if err == nil || errors.Is(err, ErrFenced) {
		return ErrFenced
	}
	return fmt.Errorf("%w: %w", ErrFenced, err)
}

// logFailure is what the log's answer means for an append. A log that was closed may have made it durable all the same.
func logFailure(err error) error {
	if errors.Is(err, wal.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrNotOpen, err)
	}
	return fenced(err)
}

// timedOut tells whether err is the end of ctx.
func timedOut(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
