package layer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kvtest"
)

// BenchmarkViewLag: a node's view follows the commands of others, which come at a rate, in even steps. Its lag is the time from the answer to a commit until the
// view has applied it; none when the view was faster than the answer.
func BenchmarkViewLag(b *testing.B) {
	for _, rate := range []int{10, 100, 1000, 4000} {
		b.Run(fmt.Sprintf("%d_per_s", rate), func(b *testing.B) {
			l := newLagBench(b, min(rate/10, proposers))
			lags := l.run(rate, b.N)
			slices.Sort(lags)
			for _, p := range []int{50, 99} {
				b.ReportMetric(float64(lags[(len(lags)-1)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
		})
	}
}

// lagBench is proposers with a table each, whose option "n" counts their commands, and the view of another node.
type lagBench struct {
	b      *testing.B
	store  *Store
	by     NodeRef
	tables []int64
	view   *View
}

func newLagBench(b *testing.B, proposers int) *lagBench {
	s, err := Open(b.Context(), kvtest.OpenOnDisk(b), "bench")
	require.NoError(b, err)
	row, _, err := s.RegisterNode(b.Context(), NodeInfo{ID: 1, Slots: 1}, FenceBoth, uuid.New(), uuid.New(), epochTime)
	require.NoError(b, err)
	l := &lagBench{b: b, store: s, by: row.Ref(), view: NewView(s, ViewOptions{Node: 2})}
	for i := range max(1, proposers) {
		table, _, err := s.CreateTable(b.Context(), l.by, CreateTable{
			Name: fmt.Sprint("t", i), UUID: uuid.New(), Kind: LogTable, Buckets: 1, RequestID: uuid.New(), At: epochTime})
		require.NoError(b, err)
		l.tables = append(l.tables, table.ID)
	}
	require.NoError(b, l.view.Sync(b.Context()))
	return l
}

// run has total commands done at a rate per second and gives the lag of each.
func (l *lagBench) run(rate, total int) []time.Duration {
	ctx, stop := context.WithCancel(l.b.Context())
	defer stop()
	var following, group errgroup.Group
	following.Go(func() error { return l.view.Run(ctx) })
	committed, applied := make([][]time.Time, len(l.tables)), make([][]time.Time, len(l.tables))
	l.b.ResetTimer()
	began := time.Now()
	for i := range l.tables {
		n := total / len(l.tables)
		if i < total%len(l.tables) {
			n++
		}
		committed[i], applied[i] = make([]time.Time, n), make([]time.Time, 0, n)
		group.Go(func() error {
			for j := range committed[i] {
				due := began.Add(time.Duration(j*len(l.tables)+i) * time.Second / time.Duration(rate))
				time.Sleep(time.Until(due))
				if _, err := l.store.AlterTable(ctx, l.by, l.tables[i], map[string]string{"n": strconv.Itoa(j + 1)}, nil, uuid.New()); err != nil {
					return err
				}
				committed[i][j] = time.Now()
			}
			return nil
		})
	}
	group.Go(func() error { return l.watch(ctx, applied, total) })
	require.NoError(l.b, group.Wait())
	l.b.StopTimer()
	stop()
	require.NoError(l.b, following.Wait())
	var lags []time.Duration
	for i := range applied {
		for j, at := range applied[i] {
			lags = append(lags, max(0, at.Sub(committed[i][j])))
		}
	}
	return lags
}

// watch notes when the view has applied each command, until it has them all.
func (l *lagBench) watch(ctx context.Context, applied [][]time.Time, total int) error {
	for seen := 0; ; {
		changed := l.view.Changed()
		now := time.Now()
		for i, id := range l.tables {
			row, _ := l.view.TableByID(id)
			n, _ := strconv.Atoi(row.Options["n"]) // absent before the first
			for len(applied[i]) < n {
				applied[i] = append(applied[i], now)
				seen++
			}
		}
		if seen == total {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
