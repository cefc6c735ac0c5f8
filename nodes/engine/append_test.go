package engine

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal"
)

// step is one append and what it should be answered.
type step struct {
	n       int
	id      int64
	epoch   int16
	seq     int32
	err     error
	base    int64
	dup     bool
	wantSeq int64 // ProducerError.Expected
}

func run(t *testing.T, u *unit, steps []step) {
	t.Helper()
	for i, st := range steps {
		got := &answers{}
		u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(st.n, st.id, st.epoch, st.seq)}}, got.done)
		u.log.answer(len(u.log.waiting), nil)
		all := got.await(t, 1)
		require.Len(t, all, 1, "step %d", i)
		require.ErrorIs(t, all[0].err, st.err, "step %d", i)
		if st.err != nil {
			var pe *ProducerError
			require.ErrorAs(t, all[0].err, &pe)
			require.Equal(t, st.wantSeq, pe.Expected, "step %d", i)
			continue
		}
		require.Equal(t, st.dup, all[0].result.Duplicate, "step %d", i)
		require.Equal(t, st.base, all[0].result.Base, "step %d", i)
		require.Equal(t, st.base+int64(st.n)-1, all[0].result.Last, "step %d", i)
	}
}

func TestKafkaProducerRules(t *testing.T) {
	for name, steps := range map[string][]step{
		"sequences follow": {{n: 2, base: 0}, {n: 3, seq: 2, base: 2}, {n: 1, seq: 5, base: 5}},
		"last five are remembered": {
			{n: 1, seq: 0, base: 0}, {n: 1, seq: 1, base: 1}, {n: 1, seq: 2, base: 2}, {n: 1, seq: 3, base: 3}, {n: 1, seq: 4, base: 4}, {n: 1, seq: 5, base: 5},
			{n: 1, seq: 1, base: 1, dup: true}, {n: 1, seq: 5, base: 5, dup: true},
			{n: 1, seq: 0, err: ErrDuplicateTooOld, wantSeq: 6},
			{n: 1, seq: 6, base: 6},
		},
		"gap":                        {{n: 2, base: 0}, {n: 1, seq: 3, err: ErrOutOfOrderSequence, wantSeq: 2}, {n: 1, seq: 2, base: 2}},
		"part of a batch":            {{n: 4, base: 0}, {n: 2, seq: 1, err: ErrDuplicateTooOld, wantSeq: 4}, {n: 4, seq: 2, err: ErrOutOfOrderSequence, wantSeq: 4}},
		"unknown begins anywhere":    {{n: 1, seq: 77, base: 0}, {n: 1, seq: 78, base: 1}},
		"lower epoch":                {{n: 1, epoch: 3, base: 0}, {n: 1, epoch: 2, seq: 1, err: ErrInvalidProducerEpoch, wantSeq: 1}},
		"higher epoch begins at 0":   {{n: 1, epoch: 3, base: 0}, {n: 1, epoch: 4, seq: 1, err: ErrOutOfOrderSequence}, {n: 1, epoch: 4, base: 1}, {n: 1, epoch: 4, seq: 1, base: 2}},
		"an epoch forgets the older": {{n: 1, base: 0}, {n: 1, epoch: 1, base: 1}, {n: 1, epoch: 1, base: 1, dup: true}, {n: 1, seq: 0, err: ErrInvalidProducerEpoch, wantSeq: 1}},
		"wrap between batches":       {{n: 2, seq: math.MaxInt32 - 1, base: 0}, {n: 1, seq: 0, base: 2}, {n: 2, seq: math.MaxInt32 - 1, base: 0, dup: true}},
		"wrap within a batch":        {{n: 4, seq: math.MaxInt32 - 1, base: 0}, {n: 1, seq: 2, base: 4}, {n: 4, seq: math.MaxInt32 - 1, base: 0, dup: true}},
		"producers are apart":        {{n: 1, id: 1, base: 0}, {n: 1, id: 2, base: 1}, {n: 1, id: 1, seq: 1, base: 2}, {n: 1, id: 2, seq: 1, base: 3}},
		"without a producer":         {{n: 1, id: -1, base: 0}, {n: 2, id: -1, base: 1}},
	} {
		t.Run(name, func(t *testing.T) { run(t, newUnit(t), steps) })
	}
}

func TestHTTPProducerRules(t *testing.T) {
	u := newUnit(t)
	one := func(epoch, seq int64) appendAnswer {
		got := &answers{}
		u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, -1, 0, 0)}, Producer: &Producer{ID: -5, Epoch: epoch, Seq: seq}}, got.done)
		u.log.answer(len(u.log.waiting), nil)
		return got.await(t, 1)[0]
	}
	refused := func(epoch, seq int64, kind error, current, expected int64) {
		t.Helper()
		var pe *ProducerError
		require.ErrorAs(t, one(epoch, seq).err, &pe)
		require.Equal(t, ProducerError{Kind: kind, Producer: -5, Epoch: current, Expected: expected, GotEpoch: epoch, GotSeq: seq}, *pe)
	}
	refused(0, 3, ErrOutOfOrderSequence, -1, 0)
	for seq := range int64(8) {
		a := one(0, seq)
		require.NoError(t, a.err)
		require.Equal(t, AppendResult{Base: seq, Last: seq, LogAppendTime: -1, ProducerSeq: seq}, a.result)
	}
	refused(0, 9, ErrOutOfOrderSequence, 0, 8)
	require.Equal(t, AppendResult{Base: 6, Last: 6, Duplicate: true, LogAppendTime: -1, ProducerSeq: 7}, one(0, 6).result)
	require.Equal(t, AppendResult{Base: -1, Last: -1, Duplicate: true, LogAppendTime: -1, ProducerSeq: 7}, one(0, 0).result, "a duplicate however old")
	refused(2, 1, ErrOutOfOrderSequence, 0, 0)
	require.NoError(t, one(2, 0).err)
	refused(1, 8, ErrInvalidProducerEpoch, 2, 1)
	require.Equal(t, int64(9), u.stream.End())
	state, ok := u.stream.Producer(-5)
	require.True(t, ok)
	require.Equal(t, int64(2), state.Epoch)
}

func TestProducersAreLoaded(t *testing.T) {
	u := newUnit(t, layer.ProducerState{Stream: 7, Producer: 9, Epoch: 1, Batches: []layer.ProducerBatch{{FirstSeq: 4, LastSeq: 5, Base: 10, Last: 11}}})
	run(t, u, []step{
		{n: 2, id: 9, epoch: 1, seq: 7, err: ErrOutOfOrderSequence, wantSeq: 6},
		{n: 1, id: 9, epoch: 1, seq: 6, base: 0},
	})
}

// The duplicate of an append that is in flight must not be answered before the original is durable: the retry of a client whose
// connection broke would be told of a record that a crash takes back.
func TestDuplicateWaitsForOriginal(t *testing.T) {
	u := newUnit(t)
	first, second := &answers{}, &answers{}
	appendOnce := func(a *answers) {
		u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(2, 1, 0, 0)}}, a.done)
	}
	appendOnce(first)
	appendOnce(second)
	require.Empty(t, first.all())
	require.Empty(t, second.all())
	require.Len(t, u.log.waiting, 1)
	u.log.answer(1, nil)
	require.Equal(t, []appendAnswer{{AppendResult{Base: 0, Last: 1, LogAppendTime: -1}, nil}}, first.all())
	require.Equal(t, []appendAnswer{{AppendResult{Base: 0, Last: 1, Duplicate: true, LogAppendTime: -1}, nil}}, second.all())

	third, fourth := &answers{}, &answers{}
	u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, 1, 0, 2)}}, third.done)
	u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, 1, 0, 2)}}, fourth.done)
	u.log.fail(wal.ErrFenced)
	for _, a := range []*answers{third, fourth} {
		require.Len(t, a.all(), 1)
		require.ErrorIs(t, a.all()[0].err, ErrFenced)
	}
	require.Equal(t, int64(2), u.stream.End())
}

func TestNothingIsAcknowledgedAfterAFailure(t *testing.T) {
	u := newUnit(t)
	var all []*answers
	for i := range 5 {
		a := &answers{}
		all = append(all, a)
		u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, 1, 0, int32(i))}}, a.done)
	}
	u.log.answer(2, nil)
	u.log.fail(wal.ErrFenced)
	late := &answers{}
	u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, 1, 0, 5)}}, late.done)
	for i, a := range append(all, late) {
		require.Len(t, a.all(), 1)
		if i < 2 {
			require.NoError(t, a.all()[0].err)
			require.Equal(t, int64(i), a.all()[0].result.Base)
		} else {
			require.ErrorIs(t, a.all()[0].err, ErrFenced)
		}
	}
	<-u.engine.Failed()
	require.ErrorIs(t, u.engine.Err(), ErrFenced)
	require.ErrorIs(t, u.stream.Wait(t.Context(), 2), ErrNotOpen)
	read, err := u.stream.Read(t.Context(), Read{MaxBytes: 1 << 20})
	require.NoError(t, err, "what is durable is still read")
	require.Len(t, read.Batches, 2)
	require.Equal(t, int64(2), read.End)
	_, err = u.engine.Open(t.Context(), layer.StreamRow{ID: 8})
	require.ErrorIs(t, err, ErrFenced)
}

func TestReadsStopAtTheDurableEnd(t *testing.T) {
	u := newUnit(t)
	got := &answers{}
	for range 4 {
		u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(3, -1, 0, 0)}}, got.done)
	}
	read := func(offset int64, max int, one bool) ReadResult {
		t.Helper()
		r, err := u.stream.Read(t.Context(), Read{Offset: offset, MaxBytes: max, MinOneBatch: one})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, ReadResult{}, read(0, 1<<20, true))
	u.log.answer(2, nil)
	size := len(makeBatch(3, -1, 0, 0).Raw)
	r := read(0, 1<<20, false)
	require.Equal(t, int64(6), r.Next)
	require.Equal(t, int64(6), r.End)
	require.Len(t, r.Batches, 2)
	r = read(4, 1<<20, false)
	require.Len(t, r.Batches, 1, "the batch that has the offset")
	b, _, err := batch.Next(r.Batches[0])
	require.NoError(t, err)
	require.Equal(t, int64(3), b.BaseOffset)
	require.Equal(t, int32(4), b.PartitionLeaderEpoch)
	require.NoError(t, b.CheckCRC())
	require.Empty(t, read(0, size-1, false).Batches)
	require.Len(t, read(0, size-1, true).Batches, 1)
	require.Len(t, read(0, 2*size-1, true).Batches, 1)
	require.Empty(t, read(6, 1<<20, true).Batches)
	_, err = u.stream.Read(t.Context(), Read{Offset: 7})
	require.Equal(t, &OffsetOutOfRange{Stream: 7, Offset: 7, End: 6}, err)
	_, err = u.stream.Read(t.Context(), Read{Offset: -1})
	require.Error(t, err)
}

func TestWaiters(t *testing.T) {
	u := newUnit(t)
	notified := make(chan struct{}, 1)
	stop := u.stream.Notify(notified)
	again := u.stream.Notify(notified)
	waited := make(chan error, 1)
	go func() { waited <- u.stream.Wait(t.Context(), 0) }()
	changed := u.stream.Changed()
	u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, -1, 0, 0)}}, func(AppendResult, error) {})
	select {
	case <-changed:
		t.Fatal("woken before the record is durable")
	case <-time.After(5 * time.Millisecond):
	}
	u.log.answer(1, nil)
	<-changed
	<-notified
	require.NoError(t, <-waited)
	stop()
	again()
	require.Empty(t, u.stream.watchers)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, u.stream.Wait(ctx, 1), context.Canceled)
	go func() { waited <- u.stream.Wait(t.Context(), 1) }()
	u.engine.Forget(u.stream)
	require.ErrorIs(t, <-waited, ErrNotOpen)
	_, err := u.stream.Read(t.Context(), Read{})
	require.ErrorIs(t, err, ErrNotOpen)
}

func TestAppendTimeout(t *testing.T) {
	u := newUnit(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := u.stream.Append(ctx, Append{Batches: []batch.Batch{makeBatch(1, 1, 0, 0)}})
	require.ErrorIs(t, err, ErrTimeout)
	u.log.answer(1, nil)
	r, err := u.stream.Append(t.Context(), Append{Batches: []batch.Batch{makeBatch(1, 1, 0, 0)}})
	require.NoError(t, err)
	require.Equal(t, AppendResult{Duplicate: true, LogAppendTime: -1}, r)
}

func TestSeveralBatchesInOneAppend(t *testing.T) {
	u := newUnit(t)
	got := &answers{}
	u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(2, 1, 0, 0), makeBatch(1, -1, 0, 0), makeBatch(2, 1, 0, 2)}}, got.done)
	require.Len(t, u.log.waiting, 1)
	require.Len(t, u.log.entries, 3)
	u.log.answer(1, nil)
	require.Equal(t, AppendResult{Base: 0, Last: 4, LogAppendTime: -1}, got.all()[0].result)
	u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, 1, 0, 4), makeBatch(1, 1, 0, 6)}}, got.done)
	require.ErrorIs(t, got.await(t, 2)[1].err, ErrOutOfOrderSequence)
	require.Equal(t, int64(5), u.stream.next, "all or nothing")
	for _, a := range []Append{{}, {Batches: []batch.Batch{{}}}, {Batches: []batch.Batch{makeBatch(1, -1, 0, 0)}, Producer: &Producer{ID: 3}}} {
		_, err := u.stream.Append(t.Context(), a)
		require.ErrorIs(t, err, ErrInvalid)
	}
}

func TestLogAppendTime(t *testing.T) {
	u := newUnit(t)
	u.tables.set(TableOptions{Retention: -1, RetentionBytes: -1, LogAppendTime: true})
	got := &answers{}
	before := time.Now().UnixMilli()
	u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(2, -1, 0, 0)}}, got.done)
	u.log.answer(1, nil)
	stamp := got.all()[0].result.LogAppendTime
	require.GreaterOrEqual(t, stamp, before)
	r, err := u.stream.Read(t.Context(), Read{MaxBytes: 1 << 20})
	require.NoError(t, err)
	b, _, err := batch.Next(r.Batches[0])
	require.NoError(t, err)
	require.NoError(t, b.CheckCRC())
	require.True(t, b.IsLogAppendTime())
	require.Equal(t, stamp, b.MaxTimestamp)
	offset, ts, found, err := u.stream.OffsetFor(t.Context(), stamp)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, int64(0), offset)
	require.Equal(t, stamp, ts)
}

func TestEndStream(t *testing.T) {
	u := newUnit(t)
	final := Append{Batches: []batch.Batch{makeBatch(2, 1, 0, 0)}}
	type end struct {
		result AppendResult
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		r, err := u.stream.EndStream(t.Context(), &final)
		ended <- end{r, err}
	}()
	require.Eventually(t, func() bool { u.log.mu.Lock(); defer u.log.mu.Unlock(); return len(u.log.waiting) == 1 }, 5*time.Second, time.Millisecond)
	_, err := u.stream.Append(t.Context(), Append{Batches: []batch.Batch{makeBatch(1, -1, 0, 0)}})
	require.ErrorIs(t, err, ErrUnavailable, "while it is being ended")
	require.NotErrorIs(t, err, ErrEnded)
	u.log.answer(1, nil)
	got := <-ended
	require.NoError(t, got.err)
	require.Equal(t, int64(1), got.result.Last)
	require.Equal(t, map[int64]int64{7: 2}, u.layer.ended)
	at, ok := u.stream.Ended()
	require.True(t, ok)
	require.Equal(t, int64(2), at)

	_, err = u.stream.Append(t.Context(), Append{Batches: []batch.Batch{makeBatch(1, 1, 0, 2)}})
	var ee *EndedError
	require.ErrorAs(t, err, &ee)
	require.Equal(t, int64(2), ee.End)
	r, err := u.stream.EndStream(t.Context(), &Append{Batches: []batch.Batch{makeBatch(2, 1, 0, 0)}})
	require.NoError(t, err, "the retry of the call that ended it")
	require.True(t, r.Duplicate)
	_, err = u.stream.EndStream(t.Context(), nil)
	require.NoError(t, err)
	_, err = u.stream.EndStream(t.Context(), &Append{Batches: []batch.Batch{makeBatch(2, 1, 0, 2)}})
	require.ErrorIs(t, err, ErrEnded)
	require.NoError(t, u.stream.Wait(t.Context(), 2), "a reader at the end learns that there is no more")
}

// A decided end is carried out although the caller was told that the metadata could not be reached.
func TestEndStreamWhileMetadataIsAway(t *testing.T) {
	u := newUnit(t)
	u.layer.mu.Lock()
	u.layer.err = errors.New("away")
	u.layer.mu.Unlock()
	_, err := u.stream.EndStream(t.Context(), nil)
	require.ErrorIs(t, err, ErrUnavailable)
	_, err = u.stream.Append(t.Context(), Append{Batches: []batch.Batch{makeBatch(1, -1, 0, 0)}})
	require.ErrorIs(t, err, ErrUnavailable)
	u.layer.mu.Lock()
	u.layer.err = nil
	u.layer.mu.Unlock()
	require.Eventually(t, func() bool { _, ok := u.stream.Ended(); return ok }, 5*time.Second, time.Millisecond)
}
