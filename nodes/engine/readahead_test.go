package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/wal/objects"
)

// A sequential reader finds most blocks fetched before it comes, by few and large reads of the store that overlap, over the bounds of objects;
// what is fetched ahead is bounded, and given back.
func TestReadahead(t *testing.T) {
	w := newWorld(t, 1)
	w.options.BlockBytes = 4 << 10
	w.options.PackAloneBytes = 1
	w.options.PackObjectBytes = 256 << 10
	w.options.PackBytes, w.options.PackMaxBytes = 256<<10, 256<<10
	w.options.FetchBytes = 32 << 10
	w.options.ReadaheadWindow = 256 << 10
	w.options.ReadaheadBytes = 200 << 10
	w.options.BlockCacheBytes = 8 << 10 // holds nothing for long
	w.wal.SegmentBytes = 64 << 10
	l := w.start()
	want := fill(t, l.streams[0], 300, 4, 1000)
	l.pack()
	l.crash()
	l = w.start()
	s := l.streams[0]
	var mu sync.Mutex
	gets, running, most := 0, 0, 0
	w.store.Before(func(ctx context.Context, op, _ string) error {
		if op != objects.OpGet {
			return nil
		}
		mu.Lock()
		gets++
		running++
		most = max(most, running)
		mu.Unlock()
		time.Sleep(2 * time.Millisecond)
		mu.Lock()
		running--
		mu.Unlock()
		return nil
	})
	got, err := readValues(t.Context(), s, 0, 4<<10)
	require.NoError(t, err)
	require.Equal(t, want, got)
	mu.Lock()
	t.Logf("%d gets, %d at once, for %d blocks", gets, most, 300)
	require.Less(t, gets, 120)
	require.Greater(t, most, 1)
	mu.Unlock()
	require.LessOrEqual(t, l.engine.ahead.used.Load(), w.options.ReadaheadBytes)
	s.readers.release(l.engine, func(*cursor) bool { return true })
	require.Equal(t, int64(0), l.engine.ahead.used.Load())

	// Readers here and there fetch nothing ahead, and many readers stay within the budget.
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			values, err := readValues(t.Context(), s, int64(i*50), 4<<10)
			if err != nil || len(values) != len(want)-i*50 {
				t.Errorf("reader %d: %d values, %v", i, len(values), err)
			}
			if used := l.engine.ahead.used.Load(); used > w.options.ReadaheadBytes+1<<20 {
				t.Errorf("%d bytes ahead", used)
			}
		})
	}
	all.Wait()
	l.engine.Forget(s)
	require.Equal(t, int64(0), l.engine.ahead.used.Load())
}
