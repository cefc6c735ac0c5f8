package batch

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// TestAZstdWindowCostsNoMoreThanItsData decodes a small frame that claims the largest window.
func TestAZstdWindowCostsNoMoreThanItsData(t *testing.T) {
	var frame bytes.Buffer
	w, err := zstd.NewWriter(&frame, zstd.WithWindowSize(maxZstdWindow), zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	const parts = 200 // a megabyte that tells no size
	for range parts {
		_, err = w.Write(bytes.Repeat([]byte("varve"), 1000))
		require.NoError(t, err)
		require.NoError(t, w.Flush())
	}
	require.NoError(t, w.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	// Less room than the data takes at first, so that more is made.
	got, err := decompress(nil, Zstd, frame.Bytes(), 1<<20)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Len(t, got, parts*5000)
	_, err = decompress(nil, Zstd, frame.Bytes(), parts*5000)
	require.NoError(t, err)
	_, err = decompress(nil, Zstd, frame.Bytes(), parts*5000-1)
	require.ErrorIs(t, err, ErrTooLarge)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}
