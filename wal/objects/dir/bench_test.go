package dir_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/varvedb/varve/wal/objects/dir"
)

func BenchmarkPutIfAbsent(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 32 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			store := open(b)
			fill(b, store, 1) // the folder stays
			body := make([]byte, size)
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				key := fmt.Sprintf("wal/1/1/new-%d", i)
				if err := store.PutIfAbsent(b.Context(), key, body); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := store.Delete(b.Context(), key); err != nil { // do not fill the disk
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkPutIfAbsentParallel has eight writers, as a node with several segments in flight.
func BenchmarkPutIfAbsentParallel(b *testing.B) {
	store := open(b)
	body := make([]byte, 16<<10)
	b.SetBytes(int64(len(body)))
	var next atomic.Int64
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := store.PutIfAbsent(b.Context(), fmt.Sprintf("wal/1/1/%d", next.Add(1)), body); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkGet(b *testing.B) {
	store := open(b)
	if err := store.Put(b.Context(), "wal/1/1/0", make([]byte, 32<<20)); err != nil {
		b.Fatal(err)
	}
	for _, size := range []int64{4 << 10, 1 << 20, 32 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if _, err := store.Get(b.Context(), "wal/1/1/0", 32<<20-size, size); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkList(b *testing.B) {
	store := open(b)
	fill(b, store, 2000)
	for b.Loop() {
		infos, err := store.List(b.Context(), "wal/1/", "wal/1/1/00500", 1000)
		if err != nil || len(infos) != 1000 {
			b.Fatal(len(infos), err)
		}
	}
}

func fill(b *testing.B, store *dir.Store, count int) {
	b.Helper()
	for i := range count {
		if err := store.Put(b.Context(), fmt.Sprintf("wal/1/1/%05d", i), nil); err != nil {
			b.Fatal(err)
		}
	}
}
