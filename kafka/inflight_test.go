package kafka

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInflightBoundsRequestsAndBytes(t *testing.T) {
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	f := inflight{maxRequests: 2, maxBytes: 100}
	acquire := func(bytes int) *charge {
		c, err := f.acquire(ctx, bytes)
		require.NoError(t, err)
		return c
	}
	refused := func(bytes int, why string) {
		_, err := f.acquire(ended, bytes)
		require.ErrorIs(t, err, context.Canceled, why)
	}
	require.False(t, f.busy())
	huge := acquire(1000) // one request always fits
	refused(1, "bytes")
	f.release(huge)
	f.add(huge, 1000) // too late to count
	first := acquire(10)
	f.add(first, 60)
	refused(50, "responses count too")
	second := acquire(20)
	refused(1, "requests")

	let := make(chan *charge)
	go func() {
		c, _ := f.acquire(ctx, 1)
		let <- c
	}()
	f.release(second)
	third := <-let
	require.NotNil(t, third)
	require.True(t, f.busy())
	f.release(third)
	f.release(first)
	require.False(t, f.busy())
	require.Zero(t, f.bytes)
}
