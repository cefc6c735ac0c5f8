package wal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAppendsGatherLongerWhilePackingDoesNotKeepUp(t *testing.T) {
	l := NewLog(Options{})
	var before time.Duration
	for _, c := range []struct {
		objects int64
		grows   bool
	}{{0, false}, {lingerFrom, false}, {lingerFrom + 100, true}, {2*lingerFrom - 1, true}, {2 * lingerFrom, true}} {
		l.objects = c.objects
		linger := l.linger()
		require.Equal(t, c.grows, linger > before, "%d objects: %v after %v", c.objects, linger, before)
		before = linger
	}
	l.objects = 100 * lingerFrom
	require.Equal(t, maxLinger, l.linger())
}
