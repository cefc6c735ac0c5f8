package wal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// appendMixed appends n batches, of which every other one is an object when InlineMax is 1000, one by one, so that each is a segment.
func (h *harness) appendMixed(n int, size func(i int) int) {
	for i := range n {
		h.append(size(i), testStreams[i%3])
	}
}

func mixed(i int) int    { return 100 + 2000*(i%2) }
func small(int) int      { return 100 }
func large(int) int      { return 2100 }
func mostly(i int) int   { return 100 + 2000*(i%5/4) }
func single(o *Options)  { o.SegmentBytes, o.InlineMax = 1, 1000 }
func (h *harness) dead() { h.abandon(); h.layer.fence(h.node) }

func TestRecoverTakesEverythingAcknowledged(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		for name, size := range map[string]func(int) int{"inline": small, "objects": large, "mixed": mixed, "runs": mostly} {
			t.Run(name, func(t *testing.T) {
				h := newHarness(t, mode, single)
				h.appendMixed(20, size)
				h.wait("acknowledged", func() bool { return h.acknowledged() == 20 })
				h.dead()
				result, err := h.recover()
				require.NoError(t, err)
				require.Equal(t, 20, result.Segments)
				require.EqualValues(t, 21, result.SealedAt)
				h.requireRecovered()
				again, err := h.recover()
				require.NoError(t, err)
				require.Equal(t, Result{SealedAt: 21}, again)
			})
		}
	})
}

func TestRecoverOfAnEmptyLog(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		h := newHarness(t, mode, single)
		h.dead()
		result, err := h.recover()
		require.NoError(t, err)
		require.Equal(t, Result{SealedAt: 1}, result)
		require.Equal(t, mode != layer.FenceLayer, len(h.store.Keys()) == 1, "the seal")
		require.Zero(t, h.store.Counter(objects.OpPut).Calls, "a seal is never put without its condition")
	})
}

func TestRecoverRefusesANodeThatIsNotFenced(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, nil)
	_, err := h.recover()
	require.ErrorIs(t, err, layer.ErrNotFenced)
	require.Equal(t, 1, h.layer.count("ConfirmFenced"))
	require.Zero(t, h.layer.count("WAL")+h.layer.count("InlineSegments"), "nothing is read before the fence is confirmed")
	require.Zero(t, h.store.Calls())
	require.NoError(t, h.close())
}

func TestRunsOfInlineSegmentsBecomeOneObject(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.appendMixed(20, mostly) // four small ones, then a large one
	h.wait("acknowledged", func() bool { return h.acknowledged() == 20 })
	h.dead()
	_, err := h.recover()
	require.NoError(t, err)
	require.EqualValues(t, 4, h.store.Counter(objects.OpPut).Calls)
	require.Equal(t, 8, h.layer.count("Adopt"))
	require.Equal(t, 4, h.layer.count("Prepare"))
	require.Empty(t, h.layer.inline[h.node])
}

func TestRunsOfObjectsAreAdoptedTogether(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.appendMixed(100, large)
	h.wait("acknowledged", func() bool { return h.acknowledged() == 100 })
	h.dead()
	result, err := h.recover()
	require.NoError(t, err)
	require.EqualValues(t, 101, result.SealedAt)
	require.Equal(t, 100, result.Segments)
	require.Less(t, h.layer.count("Adopt"), 10, "a takeover takes a few transactions, however many segments wait")
	require.Zero(t, h.store.Counter(objects.OpPut).Calls, "metadata alone")
	h.requireRecovered()
}

func TestRunsAreBounded(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.appendMixed(20, small)
	h.wait("acknowledged", func() bool { return h.acknowledged() == 20 })
	h.dead()
	o := h.recoverOptions()
	o.RunBytes = 1000
	result, err := Recover(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, 20, result.Segments)
	require.Greater(t, h.store.Counter(objects.OpPut).Calls, int64(3))
	h.requireRecovered()
}

func TestProducersAreRebuilt(t *testing.T) {
	for _, size := range []func(int) int{small, large} {
		h := newHarness(t, layer.FenceBoth, single)
		h.appendMixed(24, size)
		h.wait("acknowledged", func() bool { return h.acknowledged() == 24 })
		h.dead()
		_, err := h.recover()
		require.NoError(t, err)
		state := h.layer.states[producerKey{11, 110}]
		require.EqualValues(t, 1, state.Epoch)
		require.Len(t, state.Batches, layer.MaxProducerBatches)
		last := state.Batches[len(state.Batches)-1]
		require.Equal(t, h.next[11]-1, last.Last)
		require.Equal(t, last.Last, last.LastSeq)
		require.Equal(t, 1000+last.Last, state.LastTimestamp)
	}
}

func TestOnlyOpenStreamsAreTaken(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.appendMixed(6, large)
	h.wait("acknowledged", func() bool { return h.acknowledged() == 6 })
	h.layer.mu.Lock()
	delete(h.layer.open, 12)
	h.layer.mu.Unlock()
	h.dead()
	_, err := h.recover()
	require.NoError(t, err)
	require.Empty(t, h.layer.entries[12])
	require.NotEmpty(t, h.layer.entries[11])
	require.Len(t, h.layer.doomed, 2, "objects of which nothing is taken")
}

// TestRunThatStraddlesIsTakenOneByOne: another recoverer committed part of a shorter run and died.
func TestRunThatStraddlesIsTakenOneByOne(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.appendMixed(12, small)
	h.wait("acknowledged", func() bool { return h.acknowledged() == 12 })
	h.dead()
	other := &recoverer{o: h.recoverOptions().withDefaults(), log: h.log.o.Logger}
	require.NoError(t, other.readRow(t.Context()))
	other.at = 1
	run, err := other.inlineRun(t.Context())
	require.NoError(t, err)
	var entries []segment.Entry
	for _, s := range run[:7] {
		_, decoded, err := segment.Decode(s.Data)
		require.NoError(t, err)
		entries = append(entries, decoded...)
	}
	meta, index, err := other.writeRun(t.Context(), entries)
	require.NoError(t, err)
	require.NoError(t, h.layer.adopt(h.by, layer.Adoption{Dead: h.node, Seq: 1, Next: 8, Objects: []layer.ObjectMeta{meta}, Entries: index}, 2))

	result, err := h.recover()
	require.NoError(t, err)
	require.EqualValues(t, 13, result.SealedAt)
	h.requireRecovered()
}

func TestSlowlyWrittenRunIsWrittenAgain(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.appendMixed(3, small)
	h.wait("acknowledged", func() bool { return h.acknowledged() == 3 })
	h.dead()
	expired := false
	h.layer.setHooks(func(_ context.Context, op string) error {
		if op == "Adopt" && !expired {
			expired = true
			h.layer.mu.Lock()
			clear(h.layer.prepared)
			h.layer.mu.Unlock()
		}
		return nil
	}, nil)
	_, err := h.recover()
	require.NoError(t, err)
	require.True(t, expired)
	h.requireRecovered()
}

// TestSealAheadStopsAWriterThatGoesOn: the writer, cut off from the layer, puts segments as fast as the recoverer walks.
func TestSealAheadStopsAWriterThatGoesOn(t *testing.T) {
	h := newHarness(t, layer.FenceStore, func(o *Options) { single(o); objectsOnly(o) })
	h.append(100, 11)
	h.wait("acknowledged", func() bool { return h.acknowledged() == 1 })
	h.layer.fence(h.node)
	h.layer.setHooks(nil, func(_ context.Context, op string) error {
		if op == "Adopt" {
			told := len(h.told())
			h.append(100, 11)
			h.wait("the writer went on or was refused", func() bool { return len(h.told()) > told })
		}
		return nil
	})
	result, err := h.recover()
	require.NoError(t, err)
	require.Less(t, result.SealedAt, int64(4))
	require.ErrorIs(t, h.close(), ErrFenced)
	h.requireRecovered()
}

// TestRefusedAndAbsentDoesNotEndTheLog: rule 3.
func TestRefusedAndAbsentDoesNotEndTheLog(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.dead()
	refused := 0
	first := SegmentKey(testCluster, h.node, h.row.Incarnation, 1)
	h.store.Before(func(_ context.Context, op, key string) error {
		if op == objects.OpPutIfAbsent && key == first && refused < 4 {
			refused++
			return objects.ErrExists
		}
		return nil
	})
	result, err := h.recover()
	require.NoError(t, err)
	require.Equal(t, 4, refused)
	require.EqualValues(t, 1, result.SealedAt)
	_, sealed := h.store.Body(first)
	require.True(t, sealed, "the end has its seal")
	require.Greater(t, h.layer.count("WAL"), 1, "the first live number was read again")
}

func TestForeignOrDamagedObjectStopsRecovery(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		h := newHarness(t, mode, single)
		h.appendMixed(6, large)
		h.wait("acknowledged", func() bool { return h.acknowledged() == 6 })
		h.dead()
		key := SegmentKey(testCluster, h.node, h.row.Incarnation, 4)
		good, _ := h.store.Body(key)
		object, _, err := segment.Decode(good)
		require.NoError(t, err)
		try := func(body []byte) {
			t.Helper()
			h.store.Set(key, body)
			result, err := h.recover()
			require.ErrorIs(t, err, ErrStopped)
			require.ErrorContains(t, err, key)
			require.LessOrEqual(t, result.Segments, 3)
			row := h.layer.row(h.node)
			require.EqualValues(t, 4, row.FirstLive)
			require.Nil(t, row.SealedAt)
			now, ok := h.store.Body(key)
			require.True(t, ok, "nothing is deleted")
			require.Equal(t, body, now)
		}
		for at := object.TailPos; at < object.Size; at++ { // every byte of the tail
			body := append([]byte(nil), good...)
			body[at] ^= 0x20
			try(body)
		}
		for _, size := range []int64{0, 1, 40, object.TailPos, object.Size - 1} {
			try(good[:size:size])
		}
		try([]byte("something else"))
		other, _ := segment.Encode(logHeader(segment.KindSegment, testCluster, h.row, h.node, 5), []segment.Entry{batch(11, 0, 0, 10)}, segment.Options{})
		try(other)
		if mode == layer.FenceLayer {
			try(segment.EncodeSeal(logHeader(segment.KindSeal, testCluster, h.row, h.node, 4)))
		}

		h.store.Set(key, good)
		_, err = h.recover()
		require.NoError(t, err)
		h.requireRecovered()
	})
}

func TestDamagedInlineSegmentStopsRecovery(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.appendMixed(3, small)
	h.wait("acknowledged", func() bool { return h.acknowledged() == 3 })
	h.dead()
	h.layer.mu.Lock()
	body := h.layer.inline[h.node][2]
	h.layer.mu.Unlock()
	for at := range body {
		body[at] ^= 4
		_, err := h.recover()
		require.ErrorIs(t, err, ErrStopped, "byte %d", at)
		require.ErrorContains(t, err, "inline segment 2 of node 1@1")
		body[at] ^= 4
	}
	_, err := h.recover()
	require.NoError(t, err)
	h.requireRecovered()
}

func TestReadsDamagedOnTheWayAreRepeated(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, func(o *Options) { single(o); objectsOnly(o) })
	h.appendMixed(6, large)
	h.wait("acknowledged", func() bool { return h.acknowledged() == 6 })
	h.dead()
	h.store.SetFaults(objectstest.Faults{Seed: 3, Ops: map[string]objectstest.Rates{objects.OpGetTail: {CorruptRead: 0.15, ShortRead: 0.1}}})
	_, err := h.recover()
	require.NoError(t, err)
	h.requireRecovered()
}

func TestIndexesAreReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, layer.FenceBoth, func(o *Options) { single(o); objectsOnly(o) })
		h.appendMixed(64, large)
		synctest.Wait()
		h.dead()
		h.store.Before(func(_ context.Context, op, _ string) error {
			if op == objects.OpGetTail {
				time.Sleep(50 * time.Millisecond)
			}
			return nil
		})
		began := time.Now()
		_, err := h.recover()
		require.NoError(t, err)
		require.Less(t, time.Since(began), 64*50*time.Millisecond/4)
		h.requireRecovered()
	})
}

func TestStoreAndLayerAwayDuringRecovery(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, mode, single)
			h.appendMixed(10, mixed)
			synctest.Wait()
			h.dead()
			h.store.SetOutage(true)
			var away atomic.Bool
			h.layer.setHooks(func(context.Context, string) error {
				if away.Load() {
					return errLayerDown
				}
				return nil
			}, nil)
			go func() {
				time.Sleep(10 * time.Minute)
				away.Store(true)
				h.store.SetOutage(false)
				h.store.SetFaults(objectstest.Faults{All: objectstest.Rates{Every2nd: true}})
				time.Sleep(5 * time.Minute)
				away.Store(false)
			}()
			o := h.recoverOptions()
			o.RetryMin, o.RetryMax = 100*time.Millisecond, 10*time.Second
			_, err := Recover(t.Context(), o)
			require.NoError(t, err)
			h.requireRecovered()
		})
	})
}

func TestRecoverEndsWithItsContext(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.dead()
	h.store.SetOutage(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Recover(ctx, h.recoverOptions())
	require.Error(t, err)
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
}

// TestZombieAcknowledgesNothing: a writer whose put is delayed past fence, recovery and collection wakes up (failure case 1).
func TestZombieAcknowledgesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		h := newHarness(t, mode, func(o *Options) { single(o); o.PutTimeout = time.Minute })
		h.appendMixed(4, mixed)
		h.wait("acknowledged", func() bool { return h.acknowledged() == 4 })
		g := newGate()
		h.holdPuts(g)
		h.append(5000, 11)
		h.append(5000, 12)
		<-g.arrived
		<-g.arrived
		h.layer.fence(h.node)
		h.store.Before(nil)
		_, err := h.recover()
		require.NoError(t, err)
		h.requireRecovered()
		h.layer.finish(h.node)
		_, err = Sweep(t.Context(), h.sweepOptions())
		require.NoError(t, err)
		close(g.open)
		<-h.log.Failed()
		require.ErrorIs(t, h.close(), ErrFenced)
		require.Equal(t, 4, h.acknowledged())
		h.requireRecovered()
	})
}

// TestTwoRecoverersRace: at every commit of one, another runs to the end.
func TestTwoRecoverersRace(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		for nth := int32(1); nth < 30; nth++ {
			h := newHarness(t, mode, single)
			h.appendMixed(8, mixed)
			h.wait("acknowledged", func() bool { return h.acknowledged() == 8 })
			h.dead()
			var calls atomic.Int32
			race := func() {
				if calls.Add(1) == nth {
					_, err := h.recover()
					require.NoError(t, err)
				}
			}
			h.layer.setHooks(func(context.Context, string) error { race(); return nil }, nil)
			h.store.Before(func(context.Context, string, string) error { race(); return nil })
			_, err := h.recover()
			require.NoError(t, err)
			h.requireRecovered()
			require.EqualValues(t, 9, *h.layer.row(h.node).SealedAt)
		}
	})
}

// TestCrashAtEachStepOfRecovery: the recoverer dies at each call, before or after its effect; the next one ends the work (failure case 2).
func TestCrashAtEachStepOfRecovery(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		for _, after := range []bool{false, true} {
			for nth := int32(1); ; nth++ {
				h := newHarness(t, mode, single)
				h.appendMixed(7, mostly)
				h.wait("acknowledged", func() bool { return h.acknowledged() == 7 })
				h.dead()
				ctx, crash := context.WithCancel(t.Context())
				var calls atomic.Int32
				step := func() error {
					if calls.Add(1) >= nth {
						crash()
						return context.Canceled
					}
					return nil
				}
				layerHook := func(context.Context, string) error { return step() }
				storeHook := func(context.Context, string, string) error { return step() }
				if after {
					h.layer.setHooks(nil, layerHook)
					h.store.After(storeHook)
				} else {
					h.layer.setHooks(layerHook, nil)
					h.store.Before(storeHook)
				}
				_, err := Recover(ctx, h.recoverOptions())
				crash()
				h.layer.setHooks(nil, nil)
				h.store.Before(nil)
				h.store.After(nil)
				_, again := h.recover()
				require.NoError(t, again)
				h.requireRecovered()
				require.EqualValues(t, 8, *h.layer.row(h.node).SealedAt)
				if err == nil {
					break
				}
				require.Less(t, nth, int32(100))
			}
		}
	})
}

// TestCrashesUnderFaults: random faults everywhere, a crash at a random moment, late puts that land during and after recovery, and several
// recoverers. Whatever was acknowledged is recovered, without gaps, and nothing is acknowledged after the end.
func TestCrashesUnderFaults(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		for i := range rounds {
			seed := uint64(i)
			if i == 0 {
				seed = uint64(time.Now().UnixNano())
			}
			if !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { crashUnderFaults(t, mode, seed) })
			}) {
				return
			}
		}
	})
}

func crashUnderFaults(t *testing.T, mode layer.FenceMode, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // guards dice
	dice := rand.New(rand.NewPCG(seed, 2))
	roll := func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return dice.Float64()
	}
	h := newHarness(t, mode, func(o *Options) {
		o.SegmentBytes, o.InlineMax, o.Inflight, o.Gather = 1+random.IntN(3000), 1000, 1+random.IntN(6), time.Millisecond
		o.PutTimeout, o.InlineTimeout, o.VerifyTimeout = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	})
	rates := objectstest.Rates{Delay: 300 * time.Microsecond, Err: 0.1, Late: 0.1, ErrAfter: 0.1, Stall: 0.01}
	h.store.SetFaults(objectstest.Faults{Seed: int64(seed), All: rates})
	h.layer.setHooks(func(ctx context.Context, _ string) error {
		if roll() < 0.1 {
			return errLayerDown
		}
		return nil
	}, func(context.Context, string) error {
		if roll() < 0.1 {
			return errLayerLost
		}
		return nil
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // late puts land at any time
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(roll() * float64(2*time.Millisecond))):
				h.store.LandLate()
			}
		}
	})
	appends := 20 + random.IntN(40)
	h.appendMixed(appends, func(int) int { return 50 + random.IntN(2000) })
	target := random.IntN(appends)
	h.wait("some appends are acknowledged, or none will be", func() bool { return h.acknowledged() >= target || len(h.told()) > target })
	alive := random.IntN(2) == 0 // the writer goes on while it is recovered
	if !alive {
		h.abandon()
	}
	h.layer.fence(h.node)
	for range 3 {
		wg.Go(func() {
			_, err := h.recover()
			require.NoError(t, err)
		})
	}
	h.wait("sealed", func() bool { return h.layer.row(h.node).SealedAt != nil })
	if alive {
		h.append(5000, 11)
		if mode != layer.FenceStore { // cut off from both, it waits and acknowledges nothing, which is as well
			<-h.log.Failed()
		}
		h.abandon()
		told := h.told()
		require.Error(t, told[len(told)-1].err, "the last append came after the seal")
	}
	close(stop)
	wg.Wait()
	h.store.LandLate()
	h.requireRecovered()
	_, err := h.recover()
	require.NoError(t, err)
	h.requireRecovered()
}

func (h *harness) sweepOptions() SweepOptions {
	return SweepOptions{Layer: h.layer, Store: h.store, Cluster: testCluster, Node: h.node}
}

func TestSweepDeletesOnlyWhatIsKnownToBeGarbage(t *testing.T) {
	h := newHarness(t, layer.FenceBoth, single)
	h.appendMixed(6, large)
	h.wait("acknowledged", func() bool { return h.acknowledged() == 6 })
	h.dead()
	_, err := Sweep(t.Context(), h.sweepOptions())
	require.Error(t, err, "the log is not done")
	_, err = h.recover()
	require.NoError(t, err)
	_, err = Sweep(t.Context(), h.sweepOptions())
	require.Error(t, err, "the log is not done")
	h.layer.finish(h.node)

	key := func(seq int64) string { return SegmentKey(testCluster, h.node, h.row.Incarnation, seq) }
	zombie := func(seq int64) []byte {
		body, _ := segment.Encode(logHeader(segment.KindSegment, testCluster, h.row, h.node, seq), []segment.Entry{batch(11, 0, 0, 10)}, segment.Options{})
		return body
	}
	h.store.Set(key(200), zombie(200))                  // put after the seal, never acknowledged
	h.store.Set(key(201), []byte("not ours"))           // stays for an operator
	h.store.Set(key(202), zombie(203))                  // so does this
	h.store.Set(key(7)[:len(key(7))-1], []byte("what")) // not a segment's key
	h.layer.mu.Lock()
	delete(h.layer.meta, key(2)) // metadata is missing: the index still points there
	h.layer.doomed = append(h.layer.doomed, layer.Doomed{Object: key(3)})
	delete(h.layer.meta, key(3)) // freed, readers' grace runs
	delete(h.layer.meta, key(4)) // trimmed, destroyed, and put again by a late request
	h.layer.entries[11] = nil
	h.layer.starts[11] = 1000
	h.layer.mu.Unlock()

	result, err := Sweep(t.Context(), h.sweepOptions())
	require.NoError(t, err)
	var left []int64
	for seq := int64(1); seq <= 300; seq++ {
		if _, ok := h.store.Body(key(seq)); ok {
			left = append(left, seq)
		}
	}
	require.Equal(t, []int64{1, 2, 3, 5, 6, 7, 10, 201, 202}, left)
	require.Equal(t, 2, result.Deleted)

	h.layer.mu.Lock()
	h.layer.wals = map[layer.NodeRef]*layer.WALRow{}
	h.layer.mu.Unlock()
	_, err = Sweep(t.Context(), h.sweepOptions())
	require.True(t, errors.Is(err, layer.ErrWALNotFound))
	require.Len(t, h.store.Keys(), 10, "nothing is deleted because metadata is missing")
}

// TestCrashAtEachStepOfTheWriter: the writer dies at each of its calls, before or after the effect. What it had acknowledged is recovered, and
// at most what it had written beyond (failure case 2).
func TestCrashAtEachStepOfTheWriter(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		for _, after := range []bool{false, true} {
			for nth := int32(1); nth <= 20; nth++ {
				h := newHarness(t, mode, single)
				var calls atomic.Int32
				crashed := make(chan struct{})
				die := func(ctx context.Context) error {
					if n := calls.Add(1); n < nth {
						return nil
					} else if n == nth {
						close(crashed)
					}
					<-ctx.Done()
					return ctx.Err()
				}
				layerHook := func(ctx context.Context, _ string) error { return die(ctx) }
				storeHook := func(ctx context.Context, _, _ string) error { return die(ctx) }
				if after {
					h.layer.setHooks(nil, layerHook)
					h.store.After(storeHook)
				} else {
					h.layer.setHooks(layerHook, nil)
					h.store.Before(storeHook)
				}
				h.appendMixed(20, mixed)
				<-crashed
				h.abandon()
				h.layer.setHooks(nil, nil)
				h.store.Before(nil)
				h.store.After(nil)
				require.Less(t, h.acknowledged(), 20)
				h.layer.fence(h.node)
				_, err := h.recover()
				require.NoError(t, err)
				h.requireRecovered()
			}
		}
	})
}

func TestLongTailsAreReadInTwo(t *testing.T) {
	var entries []segment.Entry
	for s := range int64(5000) {
		entries = append(entries, batch(s, 0, 0, 10))
	}
	body, parts := segment.Encode(segment.Header{Kind: segment.KindSegment, Cluster: testCluster}, entries, segment.Options{})
	store := objectstest.NewFake()
	store.Set("long", body)
	object, err := ReadTail(t.Context(), store, "long")
	require.NoError(t, err)
	require.Equal(t, parts, object.Parts)
	require.EqualValues(t, 2, store.Counter(objects.OpGetTail).Calls)
	_, err = ReadTail(t.Context(), store, "none")
	require.ErrorIs(t, err, objects.ErrNotFound)
	store.SetFaults(objectstest.Faults{All: objectstest.Rates{ShortRead: 1}})
	_, err = ReadTail(t.Context(), store, "long")
	require.ErrorContains(t, err, "long")
}
