package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/batch"
)

func TestEndedStreamStaysEnded(t *testing.T) {
	w := newWorld(t, 2)
	l := w.start()
	s := l.streams[0]
	want := fill(t, s, 2, 2, 50)
	last := value(s.ID(), 99, 20)
	p := &batch.Producer{ID: 5}
	_, err := s.EndStream(t.Context(), &Append{Batches: []batch.Batch{build(1, p, last)}})
	require.NoError(t, err)
	want = append(want, last)
	for _, how := range []func(){l.crash, func() { l.stop() }} {
		how()
		l = w.start()
		s = l.streams[0]
		end, ended := s.Ended()
		require.True(t, ended)
		require.Equal(t, int64(5), end)
		requireValues(t, want, s, 0)
		_, err = s.Append(t.Context(), Append{Batches: []batch.Batch{build(1, nil, last)}})
		require.ErrorIs(t, err, ErrEnded)
		r, err := s.EndStream(t.Context(), &Append{Batches: []batch.Batch{build(1, p, last)}})
		require.NoError(t, err)
		require.True(t, r.Duplicate)
	}
	w.check(t)
}

// An end whose last append was durable before a crash, and which was not recorded, is recorded by the retry.
func TestRetryEndsAfterACrashBetween(t *testing.T) {
	w := newWorld(t, 1)
	l := w.start()
	final := func() Append { return Append{Batches: []batch.Batch{build(1, &batch.Producer{ID: 5}, []byte("last"))}} }
	_, err := l.streams[0].Append(t.Context(), final()) // all that the crash left of EndStream
	require.NoError(t, err)
	l.crash()
	l = w.start()
	a := final()
	r, err := l.streams[0].EndStream(t.Context(), &a)
	require.NoError(t, err)
	require.True(t, r.Duplicate)
	end, ended := l.streams[0].Ended()
	require.True(t, ended)
	require.Equal(t, int64(1), end)
}

func TestWriterSequences(t *testing.T) {
	w := newWorld(t, 1)
	l := w.start()
	send := func(seq string) error {
		records := []batch.Record{{Timestamp: 1, Value: []byte("first")}, {Timestamp: 1, Value: []byte("x"), Headers: []batch.RecordHeader{{Key: WriterSeqHeader, Value: []byte(seq)}}}}
		if seq == "" {
			records[1].Headers = nil
		}
		b, _, err := batch.Next(batch.Build(records, batch.BuildOptions{}))
		require.NoError(t, err)
		_, err = l.streams[0].Append(t.Context(), Append{Batches: []batch.Batch{b}, WriterSeq: seq})
		return err
	}
	require.NoError(t, send("a"))
	require.NoError(t, send("b"))
	var refused *WriterSeqError
	require.ErrorAs(t, send("b"), &refused)
	require.Equal(t, WriterSeqError{Stream: w.ids[0], Last: "b", Got: "b"}, *refused)
	require.ErrorIs(t, send("aa"), ErrWriterSeq)
	l.crash()
	l = w.start()
	require.ErrorIs(t, send("b"), ErrWriterSeq, "known after a restart")
	require.NoError(t, send("b1"))
	require.NoError(t, send(""))
	require.ErrorIs(t, send("b1"), ErrWriterSeq, "an append without one changes nothing while the stream is open")
	require.Equal(t, int64(8), l.streams[0].End())
}

// A stream whose table is deleted is forgotten; what the log still has of it keeps nobody from packing.
func TestDeletedTable(t *testing.T) {
	w := newWorld(t, 1)
	l := w.start()
	_, rows, err := w.layer.CreateTable(t.Context(), l.ref, layer.CreateTable{
		Name: "short-lived", UUID: uuid.New(), Kind: layer.LogTable, Buckets: 2, Leaders: []int64{1, 1}, RequestID: uuid.New(), At: time.Now()})
	require.NoError(t, err)
	for _, row := range rows {
		s := l.open(row.ID)
		fill(t, s, 2, 2, 50)
	}
	want := fill(t, l.streams[0], 2, 2, 50)
	require.NoError(t, w.layer.DeleteTable(t.Context(), l.ref, rows[0].Table, uuid.New()))
	l.engine.Forget(l.engine.Stream(rows[0].ID)) // the other one has not been noticed yet
	l.pack()
	requireValues(t, want, l.streams[0], 0)
	require.NoError(t, l.engine.Err())
	_, err = l.engine.Stream(rows[1].ID).Trim(t.Context(), 1)
	require.ErrorIs(t, err, ErrNotOpen)
	w.check(t)
}

func TestOpenTwice(t *testing.T) {
	u := newUnit(t)
	again, err := u.engine.Open(t.Context(), row(7))
	require.NoError(t, err)
	require.Same(t, u.stream, again)
	newer := row(7)
	newer.Epoch++
	_, err = u.engine.Open(t.Context(), newer)
	require.ErrorIs(t, err, ErrUnavailable)
	require.NoError(t, u.engine.Close(t.Context(), u.stream))
	require.NoError(t, u.engine.Close(t.Context(), u.stream), "again")
	_, err = u.engine.Open(t.Context(), newer)
	require.NoError(t, err)
	lost := row(9)
	ended := int64(4)
	lost.Ended = &ended
	_, err = u.engine.Open(t.Context(), lost)
	require.ErrorContains(t, err, "ended at offset 4 and has records up to 0")
}

// Closing many streams at once takes a few packs, not one for each.
func TestManyClose(t *testing.T) {
	w := newWorld(t, 200)
	l := w.start()
	for _, s := range l.streams {
		s.AppendAsync(Append{Batches: []batch.Batch{build(1, nil, []byte(fmt.Sprint(s.ID())))}}, func(AppendResult, error) {})
	}
	var all sync.WaitGroup
	for _, s := range l.streams {
		all.Go(func() {
			if err := l.engine.Close(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, len(dataKeys(w.store)), 10)
	require.Empty(t, l.engine.Streams())
}

// A reader at the durable end meets every record once, in order, while packs and merges move records from under it.
func TestReaderFollows(t *testing.T) {
	w := newWorld(t, 1)
	w.options.PackInterval = time.Millisecond
	w.options.MergeInterval = time.Millisecond
	w.options.MergeRun = 3
	w.options.BlockBytes = 2 << 10
	l := w.start()
	s := l.streams[0]
	const batches = 300
	read := make(chan error, 3)
	for range cap(read) {
		go func() {
			next := int64(0)
			for next < batches*2 {
				if err := s.Wait(t.Context(), next); err != nil {
					read <- err
					return
				}
				r, err := s.Read(t.Context(), Read{Offset: next, MaxBytes: 3000, MinOneBatch: true})
				if err != nil {
					read <- err
					return
				}
				for _, raw := range r.Batches {
					b, _, err := batch.Next(raw)
					if err != nil || b.BaseOffset != next {
						read <- fmt.Errorf("at %d: batch %d, %v", next, b.BaseOffset, err)
						return
					}
					next = b.LastOffset() + 1
				}
			}
			read <- nil
		}()
	}
	fill(t, s, batches, 2, 300)
	for range cap(read) {
		require.NoError(t, <-read)
	}
	require.NoError(t, l.engine.Err())
	l.pack()
	w.check(t)
}

// A stream that moves twice with five idempotent batches in flight: the retries are recognised, wherever the originals are by then.
func TestMoveWithFiveInFlight(t *testing.T) {
	w := newWorld(t, 1)
	l := w.start()
	led := &ledger{id: 3}
	for move := range 4 {
		s := l.streams[0]
		var answered sync.WaitGroup
		for range 5 {
			seq := len(led.sent)
			led.sent = append(led.sent, value(s.ID(), uint64(seq), 30))
			led.acked = append(led.acked, -1)
			answered.Add(1)
			s.AppendAsync(Append{Batches: []batch.Batch{build(1, &batch.Producer{ID: 3, BaseSequence: int32(seq)}, led.sent[seq])}}, func(AppendResult, error) { answered.Done() })
		}
		if move%2 == 0 {
			require.NoError(t, l.engine.Close(t.Context(), s))
			require.NoError(t, w.layer.CloseStream(t.Context(), l.ref, s.ID(), s.Epoch()))
			l.streams[0] = l.open(s.ID())
		} else {
			l.crash()
			l = w.start()
		}
		answered.Wait()
		for seq := len(led.sent) - 5; seq < len(led.sent); seq++ {
			require.NoError(t, led.resend(t.Context(), l.streams[0], seq))
		}
	}
	led.verify(t, l.streams[0])
	require.Equal(t, int64(21), l.streams[0].End())
}

// A pack that was committed in part when its node died is finished by the recoverer, segment by segment.
func TestCrashWithinACommit(t *testing.T) {
	if testing.Short() {
		t.Skip("opens two thousand streams")
	}
	for name, how := range map[string]struct {
		adopt int64
		steps int
	}{
		"copied":  {1 << 20, 7}, // prepare 2, put 2, the first part 2, before the second part
		"adopted": {1, 3},       // the first part 2, before the second part
	} {
		t.Run(name, func(t *testing.T) { crashWithinACommit(t, how.adopt, how.steps) })
	}
}

func crashWithinACommit(t *testing.T, adopt int64, steps int) {
	const streams = 2000 // index entries of more than one transaction
	w := newWorld(t, streams)
	w.wal.InlineMax = -1
	w.options.PackAdoptBytes = adopt
	l := w.start()
	for range 2 {
		var all sync.WaitGroup
		for _, s := range l.streams {
			all.Add(1)
			s.AppendAsync(Append{Batches: []batch.Batch{build(1, &batch.Producer{ID: 1, BaseSequence: int32(s.End())}, value(s.ID(), uint64(s.End()), 20))}}, func(_ AppendResult, err error) {
				if err != nil {
					t.Error(err)
				}
				all.Done()
			})
		}
		all.Wait()
	}
	segments := len(l.log.Acknowledged())
	c, ctx := w.armCrash(t.Context(), steps)
	defer c.cancel()
	require.Error(t, l.streams[0].awaitPacked(ctx, 2))
	l.crash()
	w.disarm()
	require.True(t, c.happened())
	ends := map[int64]int{}
	for _, id := range w.ids {
		end, err := w.layer.DurableEnd(t.Context(), id)
		require.NoError(t, err)
		ends[end]++
	}
	t.Logf("crashed %s: durable ends %v, %d segments", c.what, ends, segments)
	require.Greater(t, len(ends), 1, "committed in part")
	l = w.start()
	for _, s := range l.streams {
		requireValues(t, [][]byte{value(s.ID(), 0, 20), value(s.ID(), 1, 20)}, s, 0)
	}
	w.check(t)
}
