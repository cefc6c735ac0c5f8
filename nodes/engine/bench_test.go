package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

// BenchmarkAppend appends batches of 64 records of 1 KiB to some streams, each with five appends in flight, through the real log into an
// object store that answers at once, while packing goes on. MB/s are of records.
func BenchmarkAppend(b *testing.B) {
	for _, streams := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			const records, size = 64, 1 << 10
			w := newWorld(b, streams)
			w.options.PackInterval = 10 * time.Second
			l := w.start()
			w.store.After(func(_ context.Context, op, key string) error {
				if op == objects.OpPut || op == objects.OpPutIfAbsent { // nobody reads them here, and memory is bounded
					w.store.Remove(key)
				}
				return nil
			})
			values := make([][]byte, records)
			for i := range values {
				values[i] = value(1, uint64(i), size)
			}
			proto := build(1, nil, values...)
			b.SetBytes(records * size)
			b.ReportAllocs()
			b.ResetTimer()
			appendMany(b, l.streams, proto, b.N)
			b.StopTimer()
			l.crash()
		})
	}
}

// appendMany appends n copies of a batch, five in flight for each stream.
func appendMany(b *testing.B, streams []*Stream, proto batch.Batch, n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for _, s := range streams {
		all.Go(func() {
			slots := make(chan struct{}, 5)
			for left.Add(-1) >= 0 {
				if err := s.Reserve(b.Context(), len(proto.Raw)); err != nil {
					b.Error(err)
					return
				}
				slots <- struct{}{}
				one := proto
				one.Raw = append([]byte(nil), proto.Raw...)
				s.AppendAsync(Append{Batches: []batch.Batch{one}}, func(_ AppendResult, err error) {
					if err != nil {
						b.Error(err)
					}
					<-slots
				})
			}
			for range cap(slots) {
				slots <- struct{}{}
			}
		})
	}
	all.Wait()
}

// BenchmarkCatchUp reads 256 MiB from data objects, 1 MiB a read as consumers do, from a store that takes 20 ms for each read, with
// a cache that holds an eighth of it.
func BenchmarkCatchUp(b *testing.B) {
	const total = 256 << 20
	w := newWorld(b, 1)
	l := w.start()
	values := make([][]byte, 256)
	for i := range values {
		values[i] = value(1, uint64(i), 1<<10)
	}
	proto := build(1, nil, values...)
	appendMany(b, l.streams, proto, total/len(proto.Raw))
	l.pack()
	l.crash()
	w.options.BlockCacheBytes = total / 8
	w.store.SetFaults(objectstest.Faults{})
	l = w.start()
	s := l.streams[0]
	w.store.Before(func(ctx context.Context, op, _ string) error {
		if op == objects.OpGet {
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	})
	b.SetBytes(s.End() / 256 * int64(len(proto.Raw)))
	b.ResetTimer()
	for range b.N {
		for next := int64(0); next < s.End(); {
			r, err := s.Read(b.Context(), Read{Offset: next, MaxBytes: 1 << 20, MinOneBatch: true})
			require.NoError(b, err)
			next = r.Next
		}
	}
}

// BenchmarkTailRead reads what was just appended from the log cache.
func BenchmarkTailRead(b *testing.B) {
	w := newWorld(b, 1)
	l := w.start()
	s := l.streams[0]
	fill(b, s, 1000, 1, 1000)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if _, err := s.Read(b.Context(), Read{Offset: int64(i % 1000), MaxBytes: 1}); err != nil {
			b.Fatal(err)
		}
	}
}

// An idle stream costs its struct: no goroutine, no buffer, no timer.
func TestIdleStreamsAreCheap(t *testing.T) {
	const streams = 10_000
	u := newUnit(t)
	open := func(from, to int64) {
		for id := from; id < to; id++ {
			_, err := u.engine.Open(t.Context(), row(id))
			require.NoError(t, err)
		}
	}
	open(1000, 1100)
	var before, after runtime.MemStats
	runtime.GC()
	goroutines := runtime.NumGoroutine()
	runtime.ReadMemStats(&before)
	open(10_000, 10_000+streams)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / streams
	t.Logf("%d bytes for each idle stream", each)
	require.Less(t, each, int64(1200))
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+3)

	var woken atomic.Int64
	changed := make(chan struct{}, 1)
	var stops []func()
	for id := range int64(streams) {
		stops = append(stops, u.engine.Stream(10_000+id).Notify(changed))
	}
	s := u.engine.Stream(10_500)
	s.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, -1, 0, 0)}}, func(AppendResult, error) { woken.Add(1) })
	u.log.answer(1, nil)
	<-changed
	require.Equal(t, int64(1), woken.Load())
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+3)
	for _, stop := range stops {
		stop()
	}
}
