package layer

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kvtest"
)

// counting counts runs of decisions, so that a benchmark can tell how many commits had to be repeated.
type counting struct {
	kv.Database
	runs, commits atomic.Int64
}

func (c *counting) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	commit, err := c.Database.Transact(ctx, func(tr kv.Transaction) error {
		c.runs.Add(1)
		return fn(tr)
	})
	c.commits.Add(1)
	return commit, err
}

const proposers = 64

// bench runs do from 64 proposers, each a node of its own, until b.N commands are done, and reports commands and repeated runs.
func bench(b *testing.B, setup func(*Store, []NodeRef), do func(s *Store, by NodeRef, proposer, n int) error) {
	db := &counting{Database: kvtest.Open(b)}
	s, err := Open(b.Context(), db, "bench")
	require.NoError(b, err)
	nodes := make([]NodeRef, proposers)
	for i := range nodes {
		row, _, err := s.RegisterNode(b.Context(), NodeInfo{ID: int64(i + 1), Slots: 1}, FenceBoth, uuid.New(), uuid.New(), epochTime)
		require.NoError(b, err)
		nodes[i] = row.Ref()
	}
	if setup != nil {
		setup(s, nodes)
	}
	db.runs.Store(0)
	db.commits.Store(0)
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group errgroup.Group
	for i, by := range nodes {
		group.Go(func() error {
			for n := 0; left.Add(-1) >= 0; n++ {
				if err := do(s, by, i, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
	b.ReportMetric(float64(db.runs.Load()-db.commits.Load())/float64(b.N), "repeats/op")
}

func BenchmarkHeartbeat(b *testing.B) {
	bench(b, nil, func(s *Store, by NodeRef, _, _ int) error {
		_, err := s.Heartbeat(b.Context(), by)
		return err
	})
}

func BenchmarkPutInline(b *testing.B) {
	for _, size := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			segment := make([]byte, size)
			b.SetBytes(int64(size))
			bench(b, nil, func(s *Store, by NodeRef, _, n int) error { return s.PutInline(b.Context(), by, int64(n+1), segment) })
		})
	}
}

func BenchmarkCreateTable(b *testing.B) {
	for _, buckets := range []int{1, 16} {
		b.Run(fmt.Sprint(buckets), func(b *testing.B) {
			leaders := make([]int64, buckets)
			for i := range leaders {
				leaders[i] = int64(i%proposers + 1)
			}
			bench(b, nil, func(s *Store, by NodeRef, proposer, n int) error {
				_, _, err := s.CreateTable(b.Context(), by, CreateTable{
					Name: fmt.Sprintf("t-%d-%d", proposer, n), UUID: uuid.New(), Kind: LogTable, Buckets: buckets, Leaders: leaders, RequestID: uuid.New(), At: epochTime,
				})
				return err
			})
		})
	}
}

// BenchmarkCommitPack: each node packs 20 streams of its own, over and over.
func BenchmarkCommitPack(b *testing.B) {
	const streams = 20
	rows := make([][]StreamRow, proposers)
	setup := func(s *Store, nodes []NodeRef) {
		for i, by := range nodes {
			leaders := make([]int64, streams)
			for j := range leaders {
				leaders[j] = by.ID
			}
			_, created, err := s.CreateTable(b.Context(), by, CreateTable{
				Name: fmt.Sprint("t", i), UUID: uuid.New(), Kind: LogTable, Buckets: streams, Leaders: leaders, RequestID: uuid.New(), At: epochTime})
			require.NoError(b, err)
			rows[i] = created
			for _, row := range created {
				_, err := s.OpenStream(b.Context(), by, row.ID, 1)
				require.NoError(b, err)
			}
		}
	}
	bench(b, setup, func(s *Store, by NodeRef, proposer, n int) error {
		object := fmt.Sprintf("o-%d-%d", proposer, n)
		if err := s.Prepare(b.Context(), by, []string{object}, epochTime); err != nil {
			return err
		}
		p := Pack{Node: by, FirstLive: int64(n + 1), Next: int64(n + 2), Objects: []ObjectMeta{{Object: object, Size: 1, Kind: DataObject}}, At: epochTime}
		for _, row := range rows[proposer] {
			p.Entries = append(p.Entries, entry(row.ID, int64(n)*10, int64(n+1)*10, object))
			p.Producers = append(p.Producers, producer(row.ID, 1, 0, ProducerBatch{Base: int64(n) * 10, Last: int64(n)*10 + 9}))
		}
		return s.CommitPack(b.Context(), p)
	})
}

// BenchmarkLeadAndOpen: streams go from node to node, as after a failover.
func BenchmarkLeadAndOpen(b *testing.B) {
	ids := make([]int64, proposers)
	bench(b, func(s *Store, nodes []NodeRef) {
		for i, by := range nodes {
			_, created, err := s.CreateTable(b.Context(), by, CreateTable{
				Name: fmt.Sprint("t", i), UUID: uuid.New(), Kind: LogTable, Buckets: 1, Leaders: []int64{by.ID}, RequestID: uuid.New(), At: epochTime})
			require.NoError(b, err)
			ids[i] = created[0].ID
		}
	}, func(s *Store, by NodeRef, proposer, n int) error {
		epoch := int64(n + 1)
		if _, err := s.OpenStream(b.Context(), by, ids[proposer], epoch); err != nil {
			return err
		}
		if err := s.CloseStream(b.Context(), by, ids[proposer], epoch); err != nil {
			return err
		}
		_, err := s.LeadAgain(b.Context(), by, ids[proposer], epoch)
		return err
	})
}
