package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecordsAreReadFromEverywhere(t *testing.T) {
	w := newWorld(t, 3)
	w.options.BlockBytes = 4 << 10
	w.options.PackAloneBytes = 64 << 10
	w.options.PackObjectBytes = 128 << 10
	l := w.start()
	big := fill(t, l.streams[0], 100, 10, 300) // objects of its own
	small := fill(t, l.streams[1], 5, 2, 100)
	requireValues(t, big, l.streams[0], 0)
	l.pack()
	require.Empty(t, l.streams[0].tail)
	requireValues(t, big, l.streams[0], 0)
	requireValues(t, big, l.streams[0], 777)
	requireValues(t, small, l.streams[1], 3)
	require.Equal(t, int64(0), l.streams[2].End())
	big = append(big, fill(t, l.streams[0], 1, 1, 50)...)
	requireValues(t, big, l.streams[0], 990)

	l.crash()
	l = w.start() // with empty caches
	requireValues(t, big, l.streams[0], 0)
	requireValues(t, big, l.streams[0], 500)
	requireValues(t, small, l.streams[1], 0)
	more := fill(t, l.streams[1], 1, 1, 50)
	requireValues(t, append(small, more...), l.streams[1], 0)
	l.stop()
	l = w.start()
	requireValues(t, append(small, more...), l.streams[1], 0)
	require.Empty(t, l.streams[1].tail, "a closed stream has everything in objects")
}
