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
	require.False(t, f.busy())
	require.NoError(t, f.acquire(ctx, 1000), "one request always fits")
	require.Error(t, f.acquire(ended, 1), "bytes")
	f.release(1000)
	require.NoError(t, f.acquire(ctx, 10))
	f.add(60)
	require.Error(t, f.acquire(ended, 50), "responses count too")
	require.NoError(t, f.acquire(ctx, 20))
	require.Error(t, f.acquire(ended, 1), "requests")

	let := make(chan error)
	go func() { let <- f.acquire(ctx, 1) }()
	f.release(20)
	require.NoError(t, <-let)
	require.True(t, f.busy())
	f.release(1)
	f.release(70)
	require.False(t, f.busy())
}
