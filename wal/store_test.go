package wal

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kvtest"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/segment"
)

// TestOverTheLayer runs log, crash, recovery and sweep over the layer itself, on an engine with faults (embedded, or the FoundationDB
// cluster that VARVE_TEST_CLUSTER_FILE names).
func TestOverTheLayer(t *testing.T) {
	eachMode(t, func(t *testing.T, mode layer.FenceMode) {
		for seed := range uint64(3) {
			overTheLayer(t, mode, seed)
		}
	})
}

func overTheLayer(t *testing.T, mode layer.FenceMode, seed uint64) {
	ctx := t.Context()
	random := rand.New(rand.NewPCG(seed, 9))
	meta, err := layer.Open(ctx, kvtest.OpenFaulty(t, seed), testCluster)
	require.NoError(t, err)
	register := func(id int64) (layer.NodeRef, layer.WALRow) {
		node, row, err := meta.RegisterNode(ctx, layer.NodeInfo{ID: id, Slots: 1}, mode, uuid.New(), uuid.New(), time.Now())
		require.NoError(t, err)
		return node.Ref(), row
	}
	node, row := register(1)
	by, _ := register(2)
	_, streams, err := meta.CreateTable(ctx, node, layer.CreateTable{
		Name: "table", UUID: uuid.New(), Kind: layer.LogTable, Buckets: 3, Leaders: []int64{1, 1, 1}, RequestID: uuid.New(), At: time.Now(),
	})
	require.NoError(t, err)
	for i, s := range streams {
		streams[i], err = meta.OpenStream(ctx, node, s.ID, s.LeaderEpoch)
		require.NoError(t, err)
	}

	store := objectstest.NewFake()
	store.SetFaults(objectstest.Faults{Seed: int64(seed), All: objectstest.Rates{Err: 0.1, ErrAfter: 0.1, Late: 0.1}})
	log := NewLog(Options{
		Layer: meta, Store: store, Cluster: testCluster, Node: node, Row: row, SegmentBytes: 3000, InlineMax: 1000, Inflight: 4,
		RetryMin: time.Millisecond, RetryMax: 4 * time.Millisecond,
	})
	log.Start(ctx)
	var mu sync.Mutex // guards acked
	acked := map[int64]int64{}
	total := 0
	all := make(chan struct{})
	next := map[int64]int64{}
	for i := range 60 {
		s := streams[i%3].ID
		e := batch(s, next[s], next[s]+2, 50+random.IntN(2000))
		next[s] += 3
		log.Append([]segment.Entry{e}, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acked[s] = e.Last + 1
			}
			if total++; total == 60 {
				close(all)
			}
		})
	}
	<-all
	require.NoError(t, meta.FenceSelf(ctx, node))
	require.NoError(t, log.Close(ctx))
	require.Equal(t, next, acked)

	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, err := Recover(ctx, RecoverOptions{Layer: meta, Store: store, Cluster: testCluster, By: by, Dead: node, RetryMin: time.Millisecond, RetryMax: 4 * time.Millisecond})
			require.NoError(t, err)
		})
	}
	wg.Wait()
	store.SetFaults(objectstest.Faults{})
	store.LandLate()
	for more := true; more; {
		_, more, err = meta.CloseStreamsOf(ctx, by, node, 2)
		require.NoError(t, err)
	}
	require.NoError(t, meta.FinishWAL(ctx, by, node))
	before := len(store.Keys())
	swept, err := Sweep(ctx, SweepOptions{Layer: meta, Store: store, Cluster: testCluster, Node: node})
	require.NoError(t, err)
	require.Equal(t, before-swept.Deleted, len(store.Keys()))

	for _, s := range streams {
		entries, err := meta.ObjectEntries(ctx, s.ID, 0, 1000)
		require.NoError(t, err)
		end := int64(0)
		for _, e := range entries {
			require.Equal(t, end, e.Base)
			end = e.End
			index, err := store.Get(ctx, e.Object, e.IndexPos, e.IndexLen)
			require.NoError(t, err)
			parsed, err := segment.ParseIndex(index, PartOf(e))
			require.NoError(t, err)
			for _, b := range parsed.Blocks {
				data, err := store.Get(ctx, e.Object, b.Pos, b.Len)
				require.NoError(t, err)
				require.NoError(t, segment.CheckBlock(b, data))
			}
		}
		require.Equal(t, next[s.ID], end)
		states, err := meta.Producers(ctx, s.ID)
		require.NoError(t, err)
		require.Len(t, states, 1)
		require.Len(t, states[0].Batches, layer.MaxProducerBatches)
		require.Equal(t, end-1, states[0].Batches[layer.MaxProducerBatches-1].Last)
	}
	require.NoError(t, meta.Check(ctx, func(p layer.Problem) { t.Errorf("%+v", p) }))
}
