package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal/segment"
)

// Producer is the idempotent producer of an HTTP append, which counts requests rather than records. Its rules are those of the Durable
// Streams protocol, "Idempotent Producers".
type Producer struct {
	ID    int64 // at most -2: a hash of the producer's name
	Epoch int64
	Seq   int64
}

// Append is what one call appends to a stream: all of it or nothing, at consecutive offsets.
type Append struct {
	// Batches are checked (batch.Batch.Check, CheckRecords) by the caller and get their offsets here. The engine owns Raw from the call on.
	Batches []batch.Batch
	// Producer is set for HTTP producers, whose appends are of one batch. When nil, each batch's header says who produced it (Kafka).
	Producer *Producer
	// WriterSeq, unless empty, must be greater, byte by byte, than that of the append before (Durable Streams protocol, Stream-Seq). The last
	// record of the last batch carries it as WriterSeqHeader. Not for AppendAsync.
	WriterSeq string
}

// Bytes is what the append takes of the log's backlog.
func (a Append) Bytes() int {
	n := 0
	for i := range a.Batches {
		n += len(a.Batches[i].Raw)
	}
	return n
}

// AppendResult tells where an append is.
type AppendResult struct {
	Base, Last int64 // offsets of the first and last record; of the original append when Duplicate. -1 when a duplicate's are no longer known
	// Duplicate: the producer had appended it before, nothing was appended now.
	Duplicate bool
	// LogAppendTime is the timestamp that the records got, ms; -1 when they keep the producer's (Kafka: LogAppendTimeMs).
	LogAppendTime int64
	// ProducerSeq is the highest sequence accepted of an HTTP producer at its epoch; 0 otherwise.
	ProducerSeq int64
}

// Reserve waits until the log's backlog has room. Call it before AppendAsync, without any lock; Append does so itself.
//
// Errors: ErrBacklogFull (ctx ended first), ErrNotOpen (the log is being closed), ErrFenced.
func (s *Stream) Reserve(ctx context.Context, bytes int) error {
	s.engine.reserving.Add(1)
	err := s.engine.log.Reserve(ctx, bytes)
	s.engine.reserving.Add(-1)
	s.engine.reserved.Add(1)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrBacklogFull, err)
	}
	return logFailure(err)
}

// Append appends and returns when the records are durable.
//
// Errors: ErrNotOpen, ErrBacklogFull, ErrTimeout and ErrUnavailable can be tried again; ErrEnded, *ProducerError, *WriterSeqError, ErrInvalid
// and ErrFenced cannot.
// After ErrTimeout the records may still become durable.
func (s *Stream) Append(ctx context.Context, a Append) (AppendResult, error) {
	if err := s.Reserve(ctx, a.Bytes()); err != nil {
		return AppendResult{}, err
	}
	if a.WriterSeq != "" {
		if err := s.loadWriterSeq(ctx); err != nil {
			return AppendResult{}, err
		}
	}
	wait := newAppendWait()
	s.AppendAsync(a, wait.done)
	return wait.result(ctx)
}

// AppendAsync checks the append and assigns its offsets before it returns, so that calls are ordered, and calls done once: at once, on
// this goroutine, when the append is refused or is the duplicate of a durable one; on another one when a refusal has to be confirmed
// (ErrOutOfOrderSequence, see verify); otherwise when it is durable or has failed, in the order of calls
// of this stream, on the log's goroutine, which done must not hold up. Call Reserve first. Errors are those of Append, but for ErrTimeout.
func (s *Stream) AppendAsync(a Append, done func(AppendResult, error)) {
	answer, err := s.submit(a, false, done)
	switch {
	case err != nil:
		s.refuse(err, done)
	case answer != nil:
		s.engine.metrics.appends.duplicate.Inc()
		done(*answer, nil)
	}
}

// submit gives the append to the log. It returns an answer only when there is one at once; otherwise done will be called. With end set
// it also refuses every append that comes later.
func (s *Stream) submit(a Append, end bool, done func(AppendResult, error)) (*AppendResult, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	now := time.Now().UnixMilli()
	stamp := int64(-1)
	if s.engine.tables.TableOptions(s.table).LogAppendTime {
		stamp = now
		for i := range a.Batches {
			batch.SetLogAppendTime(a.Batches[i].Raw, now)
			a.Batches[i].MaxTimestamp = now
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return nil, s.failure
	}
	verdict, err := s.checkProducers(a)
	if err == nil && verdict.duplicate {
		return s.answerDuplicate(verdict, stamp, done), nil
	}
	if refusal := s.refusal(); refusal != nil { // after the producer: the duplicate of a stream's last append is known even when it has ended
		return nil, refusal
	}
	if err != nil {
		return nil, err
	}
	if err := s.checkWriterSeq(a.WriterSeq); err != nil {
		return nil, err
	}

	entries := s.assign(a, now)
	result := AppendResult{Base: entries[0].Base, Last: s.next - 1, LogAppendTime: stamp}
	if a.Producer != nil {
		result.ProducerSeq = a.Producer.Seq
	}
	if end {
		s.ending = s.next
	}
	s.inflight++
	bytes := int64(a.Bytes())
	s.engine.log.Append(entries, func(err error) { s.complete(result, bytes, err, done) })
	return nil, nil
}

// check refuses what no caller may ask for.
func (a Append) check() error {
	if len(a.Batches) == 0 {
		return fmt.Errorf("%w: append without a batch", ErrInvalid)
	}
	if a.Producer != nil && (len(a.Batches) != 1 || a.Producer.ID > -2 || a.Producer.Epoch < 0 || a.Producer.Seq < 0) {
		return fmt.Errorf("%w: append of %d batches by HTTP producer %d at epoch %d sequence %d", ErrInvalid,
			len(a.Batches), a.Producer.ID, a.Producer.Epoch, a.Producer.Seq)
	}
	for i := range a.Batches {
		b := &a.Batches[i]
		if b.Header.Records <= 0 || b.LastOffsetDelta != b.Header.Records-1 || len(b.Raw) < batch.HeaderSize {
			return fmt.Errorf("%w: batch of %d bytes with %d records and last offset delta %d", ErrInvalid, len(b.Raw), b.Header.Records, b.LastOffsetDelta)
		}
	}
	return nil
}

// assign gives the batches their offsets, and adds them to the log cache and to the state of their producers. Call with mu held.
func (s *Stream) assign(a Append, now int64) []segment.Entry {
	entries := make([]segment.Entry, len(a.Batches))
	for i := range a.Batches {
		b := &a.Batches[i]
		base, last := s.next, s.next+int64(b.LastOffsetDelta)
		batch.SetOffset(b.Raw, base, int32(s.epoch))
		entries[i] = segment.Entry{
			Stream: s.id, Epoch: s.epoch, Base: base, Last: last, MaxTimestamp: b.MaxTimestamp,
			Producer: producerOf(a.Producer, b.Header), Data: b.Raw,
		}
		s.next = last + 1
		s.tail = append(s.tail, tailBatch{base: base, last: last, maxTimestamp: b.MaxTimestamp, data: b.Raw})
		s.producers.add(s, entries[i], now)
	}
	if a.WriterSeq != "" {
		s.writer.last = a.WriterSeq
	}
	return entries
}

// producerOf is how the log records who produced a batch.
func producerOf(p *Producer, h batch.Header) segment.Producer {
	switch {
	case p != nil:
		return segment.Producer{ID: p.ID, Epoch: p.Epoch, FirstSeq: p.Seq, LastSeq: p.Seq}
	case h.HasProducer():
		return segment.Producer{ID: h.ProducerID, Epoch: int64(h.ProducerEpoch), FirstSeq: int64(h.BaseSequence), LastSeq: int64(h.LastSequence())}
	}
	return segment.Producer{ID: segment.NoProducer}
}

// complete is the log's answer to one append. The log calls it in the order of appends.
func (s *Stream) complete(result AppendResult, bytes int64, err error, done func(AppendResult, error)) {
	s.mu.Lock()
	s.inflight--
	if err != nil {
		s.failure = logFailure(err)
		err = s.failure
	} else {
		s.end = result.Last + 1
	}
	ready := s.readyDuplicates()
	failure := s.failure
	s.wake()
	s.mu.Unlock()

	m := s.engine.metrics
	if err != nil {
		m.appends.failed.Inc()
		done(AppendResult{}, err)
	} else {
		m.appends.ok.Inc()
		m.AppendBytes.Add(float64(bytes))
		m.AppendRecords.Add(float64(result.Last - result.Base + 1))
		s.engine.gathered(bytes)
		done(result, nil)
	}
	for _, d := range ready {
		d.answer(failure)
	}
}

// duplicateWait is a duplicate of an append that is not durable yet.
type duplicateWait struct {
	result AppendResult
	until  int64 // the durable end at which it can be answered
	done   func(AppendResult, error)
}

func (d duplicateWait) answer(failure error) {
	if failure != nil {
		d.done(AppendResult{}, failure)
		return
	}
	d.done(d.result, nil)
}

// answerDuplicate answers at once, or when the original is durable. Call with mu held.
func (s *Stream) answerDuplicate(v verdict, stamp int64, done func(AppendResult, error)) *AppendResult {
	result := AppendResult{Base: v.base, Last: v.last, Duplicate: true, LogAppendTime: stamp, ProducerSeq: v.seq}
	if v.until <= s.end {
		return &result
	}
	s.duplicates = append(s.duplicates, duplicateWait{result: result, until: v.until, done: done})
	return nil
}

// readyDuplicates takes the duplicates that can be answered now: all of them when the stream has failed. Call with mu held.
func (s *Stream) readyDuplicates() []duplicateWait {
	if len(s.duplicates) == 0 {
		return nil
	}
	var ready, waiting []duplicateWait
	for _, d := range s.duplicates {
		if s.failure != nil || d.until <= s.end {
			ready = append(ready, d)
		} else {
			waiting = append(waiting, d)
		}
	}
	s.duplicates = waiting
	return ready
}

// appendWait turns the answer of AppendAsync into a wait.
type appendWait struct{ answers chan appendAnswer }

type appendAnswer struct {
	result AppendResult
	err    error
}

func newAppendWait() appendWait { return appendWait{answers: make(chan appendAnswer, 1)} }

func (w appendWait) done(result AppendResult, err error) { w.answers <- appendAnswer{result, err} }

func (w appendWait) result(ctx context.Context) (AppendResult, error) {
	select {
	case a := <-w.answers:
		return a.result, a.err
	case <-ctx.Done():
		return AppendResult{}, fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
	}
}
