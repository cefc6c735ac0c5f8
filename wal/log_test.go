package wal

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/segment"
)

var modes = []layer.FenceMode{layer.FenceBoth, layer.FenceStore, layer.FenceLayer}

func eachMode(t *testing.T, test func(t *testing.T, mode layer.FenceMode)) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) { test(t, mode) })
	}
}

func puts(h *harness) int64 {
	return h.store.Counter(objects.OpPut).Calls + h.store.Counter(objects.OpPutIfAbsent).Calls
}

func TestSmallAppendIsOneInlineCommit(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		h := newHarness(t, mode, nil)
		h.append(100, 11)
		require.NoError(t, h.close())
		require.Equal(t, 1, h.acknowledged())
		require.Equal(t, 1, h.layer.count("PutInline"))
		require.Zero(t, h.layer.count("VerifyNode"), "the transaction checked the node row")
		require.Zero(t, h.store.Calls())
	})
}

func TestLargeAppendIsOnePutAndAVerifyReadAfterIt(t *testing.T) {
	reads := map[layer.FenceMode]int{layer.FenceBoth: 1, layer.FenceStore: 0, layer.FenceLayer: 1}
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		h := newHarness(t, mode, nil)
		var answered atomic.Bool
		h.store.After(func(context.Context, string, string) error {
			answered.Store(true)
			return nil
		})
		h.layer.setHooks(func(_ context.Context, op string) error {
			require.True(t, op != "VerifyNode" || answered.Load(), "the read began before the put was answered")
			return nil
		}, nil)
		h.append(100_000, 11)
		require.NoError(t, h.close())
		require.Equal(t, 1, h.acknowledged())
		require.EqualValues(t, 1, puts(h))
		require.Equal(t, reads[mode], h.layer.count("VerifyNode"))
		require.Zero(t, h.layer.count("PutInline"))
		require.Equal(t, mode != layer.FenceLayer, h.store.Counter(objects.OpPutIfAbsent).Calls == 1, "mode layer does without conditions")
	})
}

func TestWhatGathersInFlightIsOneSegment(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, nil)
	g := newGate()
	h.layer.setHooks(func(ctx context.Context, op string) error { return g.pass(ctx, op) }, nil)
	h.append(100, 11)
	<-g.arrived
	for range 10 {
		h.append(100, 11, 12)
	}
	require.Empty(t, h.told())
	close(g.open)
	require.NoError(t, h.close())
	require.Equal(t, 11, h.acknowledged())
	require.Equal(t, 2, h.layer.count("PutInline"))
	segments := h.log.Acknowledged()
	require.Len(t, segments, 2)
	require.Len(t, segments[1].Entries, 20)
	require.EqualValues(t, []int64{1, 2}, []int64{segments[0].Seq, segments[1].Seq})
}

func TestFullSegmentsAreWrittenAtOnceUpToInflight(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, func(o *Options) { o.InlineMax, o.SegmentBytes, o.Inflight = -1, 1000, 3 })
	g := newGate()
	h.holdPuts(g)
	for range 12 {
		h.append(500, 11)
	}
	for range 3 {
		<-g.arrived
	}
	h.log.mu.Lock()
	require.Equal(t, 3, h.log.inflight)
	h.log.mu.Unlock()
	require.Empty(t, g.arrived, "a fourth segment is in flight")
	close(g.open)
	require.NoError(t, h.close())
	require.Equal(t, 12, h.acknowledged())
	for _, s := range h.log.Acknowledged() {
		require.LessOrEqual(t, len(s.Entries), 2, "segment %d", s.Seq)
	}
}

func TestAnAppendWaitsNoLongerThanGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, layer.FenceBoth, func(o *Options) { o.InlineMax, o.Gather = -1, 20*time.Millisecond })
		g := newGate()
		h.holdPuts(g)
		h.append(100, 11)
		synctest.Wait()
		h.append(100, 11)
		time.Sleep(19 * time.Millisecond)
		synctest.Wait()
		require.Len(t, g.arrived, 1)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.Len(t, g.arrived, 2)
		close(g.open)
		require.NoError(t, h.close())
		require.Equal(t, 2, h.acknowledged())
	})
}

func TestAcknowledgementsKeepTheOrder(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, func(o *Options) { o.SegmentBytes = 1 })
	g := newGate()
	h.holdPuts(g)
	h.append(100_000, 11) // held
	<-g.arrived
	for range 5 {
		h.append(100, 12) // inline, lands at once
	}
	h.wait("the later segments have landed", func() bool { return h.layer.count("PutInline") == 5 })
	require.Empty(t, h.told())
	require.Empty(t, h.log.Acknowledged())
	close(g.open)
	require.NoError(t, h.close())
	require.Equal(t, 6, h.acknowledged())
}

func TestNumbersStayBelowFirstLivePlusBound(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, func(o *Options) { o.BacklogSegments, o.SegmentBytes = 3, 1 })
	for range 5 {
		h.append(100, 11)
	}
	h.wait("three are acknowledged", func() bool { return h.acknowledged() == 3 })
	require.Equal(t, 3, h.layer.count("PutInline"))
	h.log.Packed(2)
	h.wait("one more", func() bool { return h.acknowledged() == 4 })
	require.EqualValues(t, 4, h.layer.count("PutInline"))
	h.log.Packed(5)
	require.NoError(t, h.close())
	require.Equal(t, 5, h.acknowledged())
	require.Len(t, h.log.Acknowledged(), 1)
	require.EqualValues(t, 5, h.log.Acknowledged()[0].Seq)
}

func TestInlineBudgetBoundsWhatLiesInTheLayer(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, func(o *Options) { o.InlineBudget, o.SegmentBytes = 2500, 1 })
	for i := range 3 {
		h.append(1000, 11)
		h.wait("acknowledged", func() bool { return h.acknowledged() == i+1 })
	}
	placed := func() (inline []bool) {
		for _, s := range h.log.Acknowledged() {
			inline = append(inline, s.Inline)
		}
		return inline
	}
	require.Equal(t, []bool{true, true, false}, placed())
	h.log.Packed(3)
	h.append(1000, 11)
	require.NoError(t, h.close())
	require.Equal(t, []bool{false, true}, placed(), "packing gave the budget back")
}

func TestRefusedPutIsReadBack(t *testing.T) {
	cases := []struct {
		name  string
		there func(h *harness, key string, own []byte) []byte // nil: nothing
		err   error
	}{
		{"own bytes: it had succeeded", func(_ *harness, _ string, own []byte) []byte { return own }, nil},
		{"a seal: fenced", func(h *harness, _ string, _ []byte) []byte {
			return segment.EncodeSeal(logHeader(segment.KindSeal, testCluster, h.row, h.node, 1))
		}, ErrFenced},
		{"a seal of another number: stopped", func(h *harness, _ string, _ []byte) []byte {
			return segment.EncodeSeal(logHeader(segment.KindSeal, testCluster, h.row, h.node, 2))
		}, ErrStopped},
		{"a seal of another incarnation: stopped", func(h *harness, _ string, _ []byte) []byte {
			row := h.row
			row.Incarnation[3]++
			return segment.EncodeSeal(logHeader(segment.KindSeal, testCluster, row, h.node, 1))
		}, ErrStopped},
		{"a damaged segment: stopped", func(_ *harness, _ string, own []byte) []byte { own[20] ^= 1; return own }, ErrStopped},
		{"something short: stopped", func(*harness, string, []byte) []byte { return []byte("hello") }, ErrStopped},
		{"something long: stopped", func(*harness, string, []byte) []byte { return make([]byte, 1<<20) }, ErrStopped},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, layer.FenceBoth, objectsOnly)
			key := SegmentKey(testCluster, h.node, h.row.Incarnation, 1)
			own, _ := segment.Encode(logHeader(segment.KindSegment, testCluster, h.row, h.node, 1), []segment.Entry{batch(11, 0, 0, 10_000)}, segment.Options{})
			h.store.Set(key, c.there(h, key, own))
			h.append(10_000, 11)
			if c.err == nil {
				require.NoError(t, h.close())
				require.Equal(t, 1, h.acknowledged())
				return
			}
			<-h.log.Failed()
			require.ErrorIs(t, h.close(), c.err)
			require.ErrorContains(t, h.log.Err(), key)
			require.ErrorIs(t, h.told()[0].err, c.err)
			h.append(100, 11)
			h.wait("refused", func() bool { return len(h.told()) == 2 })
			require.ErrorIs(t, h.told()[1].err, c.err)
			require.ErrorIs(t, h.log.Reserve(t.Context(), 1), c.err)
		})
	}
	t.Run("absent: put again", func(t *testing.T) {
		h := newHarness(t, layer.FenceBoth, objectsOnly)
		refused := 0
		h.store.Before(func(_ context.Context, op, _ string) error {
			if op == objects.OpPutIfAbsent && refused < 3 {
				refused++
				return objects.ErrExists
			}
			return nil
		})
		h.append(100, 11)
		require.NoError(t, h.close())
		require.Equal(t, 1, h.acknowledged())
		require.EqualValues(t, 4, puts(h))
	})
}

func TestVerifyReadsAreShared(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, func(o *Options) { o.InlineMax, o.SegmentBytes, o.Inflight = -1, 1, 8 })
	g := newGate()
	h.layer.setHooks(func(ctx context.Context, op string) error { return g.pass(ctx, op) }, nil)
	h.append(100, 11)
	<-g.arrived // the read for the first put
	for range 5 {
		h.append(100, 11)
	}
	h.wait("five puts are answered", func() bool {
		h.log.mu.Lock()
		defer h.log.mu.Unlock()
		return len(h.log.toVerify) == 5
	})
	require.Empty(t, h.told(), "a read that began before a put was answered does not count for it")
	close(g.open)
	require.NoError(t, h.close())
	require.Equal(t, 6, h.acknowledged())
	require.Equal(t, 2, h.layer.count("VerifyNode"))
}

// TestVerifyReadMadeBeforeThePutDoesNotCount: the fence comes while a read for an earlier segment runs.
func TestVerifyReadMadeBeforeThePutDoesNotCount(t *testing.T) {
	h := newHarness(t, layer.FenceLayer, func(o *Options) { o.InlineMax, o.SegmentBytes = -1, 1 })
	g := newGate()
	h.layer.setHooks(nil, func(ctx context.Context, op string) error { return g.pass(ctx, op) })
	h.append(100, 11)
	<-g.arrived // the first read saw the node unfenced
	h.layer.fence(h.node)
	h.append(100, 12)
	h.wait("the second put is answered", func() bool {
		h.log.mu.Lock()
		defer h.log.mu.Unlock()
		return len(h.log.toVerify) == 1
	})
	close(g.open)
	<-h.log.Failed()
	require.ErrorIs(t, h.close(), layer.ErrFenced)
	require.Equal(t, 1, h.acknowledged())
}

func TestLayerUnreachable(t *testing.T) {
	down := func(context.Context, string) error { return errLayerDown }
	t.Run("both: the read is skipped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, layer.FenceBoth, func(o *Options) { o.SegmentBytes, o.RetryMin, o.RetryMax = 1, 50*time.Millisecond, time.Second })
			h.layer.setHooks(down, nil)
			began := time.Now()
			for range 20 {
				h.append(100, 11)
			}
			synctest.Wait()
			require.Equal(t, 20, h.acknowledged(), "appends go on without the layer")
			require.Zero(t, time.Since(began))
			require.LessOrEqual(t, h.layer.count("PutInline"), 4, "once it is known to be down, small segments are objects")
			for _, s := range h.log.Acknowledged() {
				require.False(t, s.Inline)
			}
			h.layer.setHooks(nil, nil)
			time.Sleep(5 * time.Second)
			h.append(100, 11)
			require.NoError(t, h.close())
			require.True(t, h.log.Acknowledged()[20].Inline, "its return is noticed")
		})
	})
	t.Run("both: a layer that does not answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, layer.FenceBoth, func(o *Options) { o.SegmentBytes, o.VerifyTimeout, o.InlineTimeout = 1, time.Second, 2*time.Second })
			h.layer.setHooks(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }, nil)
			h.append(100, 11)
			time.Sleep(2*time.Second + time.Millisecond)
			synctest.Wait()
			require.Equal(t, 1, h.acknowledged())
			began := time.Now()
			h.append(100, 11)
			synctest.Wait()
			require.Equal(t, 2, h.acknowledged(), "and from then on without waiting")
			require.Zero(t, time.Since(began))
			require.NoError(t, h.close())
		})
	})
	t.Run("layer: appends wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, layer.FenceLayer, func(o *Options) { o.RetryMin, o.RetryMax = 100*time.Millisecond, 5*time.Second })
			h.layer.setHooks(down, nil)
			h.append(100, 11)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			require.Empty(t, h.told())
			h.layer.setHooks(nil, nil)
			require.NoError(t, h.close())
			require.Equal(t, 1, h.acknowledged())
		})
	})
	t.Run("both: an answer that is an error is no silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, layer.FenceBoth, func(o *Options) { objectsOnly(o); o.RetryMin, o.RetryMax = 100*time.Millisecond, time.Second })
			h.layer.setHooks(func(context.Context, string) error { return layer.ErrCorruptRow }, nil)
			h.append(100, 11)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, h.told(), "the read is not skipped")
			h.layer.setHooks(nil, nil)
			require.NoError(t, h.close())
			require.Equal(t, 1, h.acknowledged())
		})
	})
	t.Run("both: a database that forgot this life", func(t *testing.T) {
		for _, size := range []int{100, 100_000} {
			h := newHarness(t, layer.FenceBoth, nil)
			h.layer.mu.Lock()
			delete(h.layer.node, h.node.ID)
			h.layer.mu.Unlock()
			h.append(size, 11)
			<-h.log.Failed()
			require.ErrorIs(t, h.close(), ErrFenced)
			require.Zero(t, h.acknowledged())
		}
	})
	t.Run("both: the fence is noticed when it returns", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, layer.FenceBoth, nil)
			h.layer.setHooks(down, nil)
			h.append(100, 11)
			synctest.Wait()
			require.Equal(t, 1, h.acknowledged())
			h.layer.fence(h.node)
			h.layer.setHooks(nil, nil)
			<-h.log.Failed()
			require.ErrorIs(t, h.close(), ErrFenced)
		})
	})
}

func TestFenceIsFinal(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		for _, size := range []int{100, 100_000} {
			for cause, do := range map[error]func(h *harness){
				layer.ErrFenced:   func(h *harness) { h.layer.fence(h.node) },
				layer.ErrReplaced: func(h *harness) { h.layer.register(1, mode) },
			} {
				if size == 100_000 && mode == layer.FenceStore {
					continue // only a seal fences it
				}
				h := newHarness(t, mode, nil)
				h.append(size, 11)
				h.wait("acknowledged", func() bool { return h.acknowledged() == 1 })
				do(h)
				h.append(size, 11)
				<-h.log.Failed()
				require.ErrorIs(t, h.close(), ErrFenced)
				require.ErrorIs(t, h.log.Err(), cause)
				require.Equal(t, 1, h.acknowledged())
				var fenced *FencedError
				require.ErrorAs(t, h.told()[1].err, &fenced)
				require.Equal(t, h.node, fenced.Node)
				require.EqualValues(t, 2, fenced.Seq)
			}
		}
	})
}

func TestStoreUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, layer.FenceBoth, func(o *Options) { o.InlineBudget, o.RetryMin, o.RetryMax = 1<<20, 100*time.Millisecond, 5*time.Second })
		h.store.SetOutage(true)
		h.append(200_000, 11)
		h.append(200_000, 11)
		synctest.Wait()
		require.Equal(t, 2, h.acknowledged(), "what fits goes inline")
		require.True(t, h.log.Acknowledged()[0].Inline)
		require.True(t, h.log.Acknowledged()[0].Stored, "a put of unknown outcome may have left an object")
		h.append(600_000, 11)
		h.append(300_000, 11)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2, h.acknowledged(), "the rest waits")
		h.store.SetOutage(false)
		require.NoError(t, h.close())
		require.Equal(t, 4, h.acknowledged())
		require.False(t, h.log.Acknowledged()[2].Inline)
	})
}

func TestPutThatTimedOutAndSucceeded(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		h := newHarness(t, mode, objectsOnly)
		var lost atomic.Int32
		h.store.After(func(_ context.Context, op, _ string) error {
			if (op == objects.OpPutIfAbsent || op == objects.OpPut) && lost.Add(1) <= 3 {
				return objectstest.ErrTimedOut
			}
			return nil
		})
		h.append(100, 11)
		h.append(100, 12)
		require.NoError(t, h.close())
		require.Equal(t, 2, h.acknowledged())
	})
}

// TestEveryCallFailsOnce is failure case 9: every write fails once at each place, before and after its effect; nothing is acknowledged out
// of order or before it is durable (harness.requireDurable), and everything is acknowledged in the end.
func TestEveryCallFailsOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		for _, after := range []bool{false, true} {
			for nth := int32(1); nth <= 30; nth++ {
				h := newHarness(t, mode, func(o *Options) { o.SegmentBytes, o.InlineMax = 1, 1000 })
				var calls atomic.Int32
				fails := func(err error) error {
					if calls.Add(1) == nth {
						return err
					}
					return nil
				}
				storeHook := func(context.Context, string, string) error { return fails(objectstest.ErrTimedOut) }
				layerHook := func(context.Context, string) error { return fails(errLayerLost) }
				if after {
					h.store.After(storeHook)
					h.layer.setHooks(nil, layerHook)
				} else {
					h.store.Before(storeHook)
					h.layer.setHooks(layerHook, nil)
				}
				for i := range 10 {
					h.append(100+1000*(i%2), testStreams[i%3])
				}
				require.NoError(t, h.close())
				require.Equal(t, 10, h.acknowledged())
			}
		}
	})
}

func TestEverySecondCallIs503(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		h := newHarness(t, mode, func(o *Options) { o.SegmentBytes, o.InlineMax, o.InlineFallback = 1, -1, -1 })
		h.store.SetFaults(objectstest.Faults{All: objectstest.Rates{Every2nd: true}})
		for i := range 20 {
			h.append(100, testStreams[i%3])
		}
		require.NoError(t, h.close())
		require.Equal(t, 20, h.acknowledged())
	})
}

func TestReserveWaitsForTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, layer.FenceBoth, func(o *Options) { o.BacklogBytes, o.SegmentBytes = 1000, 1 })
		require.NoError(t, h.log.Reserve(t.Context(), 5000), "more than the bound fits an empty backlog")
		h.append(600, 11)
		synctest.Wait()
		require.NoError(t, h.log.Reserve(t.Context(), 400))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.log.Reserve(ctx, 401), context.DeadlineExceeded)

		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				require.NoError(t, h.log.Reserve(t.Context(), 600))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				h.append(600, 11)
			})
			synctest.Wait()
		}
		require.Empty(t, order)
		h.log.Packed(2)
		synctest.Wait()
		require.Equal(t, []int{0}, order, "one at a time, in line")
		time.Sleep(time.Second)
		require.Equal(t, []int{0}, order)
		h.log.Packed(3)
		synctest.Wait()
		h.log.Packed(4)
		wg.Wait()
		require.Equal(t, []int{0, 1, 2}, order)
		require.NoError(t, h.close())
		require.ErrorIs(t, h.log.Reserve(t.Context(), 1), ErrClosed)
	})
}

func TestReserveGoesOnWhenThoseLetThroughDoNotAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, layer.FenceBoth, func(o *Options) { o.BacklogBytes = 1000 })
		h.append(900, 11)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { require.NoError(t, h.log.Reserve(t.Context(), 900)) })
		}
		synctest.Wait()
		h.log.Packed(2)
		wg.Wait()
		require.NoError(t, h.close())
	})
}

func TestReserveWaitsForNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, layer.FenceBoth, func(o *Options) { o.BacklogSegments, o.SegmentBytes = 2, 1 })
		h.append(1, 11)
		h.append(1, 11)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.log.Reserve(ctx, 1), context.DeadlineExceeded)
		h.log.Packed(2)
		require.NoError(t, h.log.Reserve(t.Context(), 1))
		require.NoError(t, h.close())
	})
}

func TestCloseFlushesAndThenRefuses(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, func(o *Options) { o.SegmentBytes = 500 })
	for range 50 {
		h.append(100, 11)
	}
	require.NoError(t, h.close())
	require.Equal(t, 50, h.acknowledged())
	h.append(100, 11)
	h.wait("refused", func() bool { return len(h.told()) == 51 })
	require.ErrorIs(t, h.told()[50].err, ErrClosed)
	require.NoError(t, h.close(), "twice")
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, objectsOnly)
	h.store.SetOutage(true)
	h.append(100, 11)
	h.append(100, 11)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, h.log.Close(ctx), context.DeadlineExceeded)
	require.Len(t, h.told(), 2)
	require.ErrorIs(t, h.told()[0].err, ErrClosed)
}

func TestEndOfTheStartContextStopsTheLog(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, objectsOnly)
	ctx, cancel := context.WithCancel(t.Context())
	log := NewLog(h.log.o)
	log.Start(ctx)
	h.store.SetOutage(true)
	done := make(chan error, 1)
	log.Append([]segment.Entry{batch(11, 0, 0, 10)}, func(err error) { done <- err })
	cancel()
	require.ErrorIs(t, <-done, ErrClosed)
	require.ErrorIs(t, log.Close(t.Context()), ErrClosed)
	require.NoError(t, h.close())
}

func TestAppendFromDone(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, nil)
	again := make(chan error, 1)
	h.log.Append([]segment.Entry{batch(11, 0, 0, 10)}, func(error) {
		h.log.Append([]segment.Entry{batch(11, 1, 1, 10)}, func(err error) { again <- err })
	})
	require.NoError(t, <-again)
	require.NoError(t, h.close())
}

func TestKeysBeginWithAHashAndAreValid(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, nil)
	defer func() { require.NoError(t, h.close()) }()
	first, second := SegmentKey(testCluster, h.node, h.row.Incarnation, 9), SegmentKey(testCluster, h.node, h.row.Incarnation, 10)
	require.Less(t, first, second)
	require.NoError(t, objects.ValidateKey(first))
	require.NoError(t, objects.ValidateKey(DataKey(testCluster, h.row.Incarnation)))
	require.Regexp(t, `^[0-9a-f]{4}/test/wal/1/1/[0-9a-f-]{36}/0{19}9$`, first)
	require.Regexp(t, `^[0-9a-f]{4}/test/data/[0-9a-f-]{36}$`, DataKey(testCluster, h.row.Incarnation))
	hashes := map[string]bool{}
	for epoch := range int64(100) {
		hashes[LogPrefix(testCluster, layer.NodeRef{ID: 1, Epoch: epoch}, h.row.Incarnation)[:4]] = true
	}
	require.Greater(t, len(hashes), 90)
	seq, ok := parseSeq(LogPrefix(testCluster, h.node, h.row.Incarnation), second)
	require.True(t, ok)
	require.EqualValues(t, 10, seq)
}

// TestLateAnswersAreIgnored: a put that hangs is given up, the segment goes inline, and the put takes effect long after.
func TestLateAnswersAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, layer.FenceBoth, func(o *Options) { o.InlineMax, o.InlineFallback, o.PutTimeout = 1000, 100_000, 3*time.Second })
		h.store.SetFaults(objectstest.Faults{Ops: map[string]objectstest.Rates{objects.OpPutIfAbsent: {Stall: 1}}})
		h.append(5000, 11)
		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, h.acknowledged())
		s := h.log.Acknowledged()[0]
		require.True(t, s.Inline && s.Stored, "its object may exist, and is not the segment")
		h.layer.mu.Lock()
		body := h.layer.inline[h.node][1]
		h.layer.mu.Unlock()
		h.store.Set(s.Key, body)
		h.store.SetFaults(objectstest.Faults{})
		h.append(5000, 11)
		h.dead()
		_, err := h.recover()
		require.NoError(t, err)
		h.requireRecovered()
	})
}

func TestReserveEndsWithTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, layer.FenceBoth, func(o *Options) { o.BacklogBytes = 1000 })
		h.append(900, 11)
		waits := make(chan error, 2)
		for range 2 {
			go func() { waits <- h.log.Reserve(t.Context(), 900) }()
		}
		synctest.Wait()
		h.layer.fence(h.node)
		h.append(900, 11)
		require.ErrorIs(t, <-waits, ErrFenced)
		require.ErrorIs(t, <-waits, ErrFenced)
		require.ErrorIs(t, h.close(), ErrFenced)
	})
}

func TestLogThatWasNeverStarted(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, nil)
	require.NoError(t, h.close())
	log := NewLog(h.log.o)
	answers := make(chan error, 2)
	log.Append([]segment.Entry{batch(11, 0, 0, 10)}, func(err error) { answers <- err })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, log.Close(ctx), context.DeadlineExceeded)
	log.Append([]segment.Entry{batch(11, 1, 1, 10)}, func(err error) { answers <- err })
	require.ErrorIs(t, <-answers, ErrClosed)
	require.ErrorIs(t, <-answers, ErrClosed)
}
