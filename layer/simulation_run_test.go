package layer

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv/faults"
	"github.com/varvedb/varve/layer/kvtest"
)

// seeds gives the seeds to run: fresh ones, or the one in VARVE_SEED.
func seeds(t *testing.T, n int) []uint64 {
	if text := os.Getenv("VARVE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		return []uint64{seed}
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = rand.Uint64N(1_000_000_000)
	}
	return out
}

// Random commands of three nodes, their former selves and their recoverers, one at a time, with faults: after each, every invariant holds, and a view equals the
// rows. At the end every acknowledged record is where it was put.
func TestRandomCommands(t *testing.T) {
	for _, seed := range seeds(t, 3) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Logf("replay with VARVE_SEED=%d", seed)
			random := rand.New(rand.NewPCG(seed, 1))
			db := kvtest.OpenFaulty(t, seed)
			db.SetRates(faults.Rates{Conflict: 0.05, TooOld: 0.02, UnknownCommitted: 0.1, UnknownLost: 0.05})
			store, err := Open(t.Context(), db, "test")
			require.NoError(t, err)
			checker, err := Open(t.Context(), db.Unwrap(), "test")
			require.NoError(t, err)
			w := newWorld(t, store)
			var actors []*actor
			for id := int64(1); id <= 3; id++ {
				actors = append(actors, newActor(t, t.Context(), w, id, random))
			}
			view := NewView(checker, ViewOptions{Node: 1, MaxStreams: 5})
			var trace []string
			for step := range 500 {
				a := actors[random.IntN(len(actors))]
				err := a.step(t.Context())
				trace = append(trace, a.trace...)
				a.trace = nil
				if err != nil {
					t.Fatalf("step %d: %v\n%s", step, err, strings.Join(trace, "\n"))
				}
				problems, err := checker.problems(t.Context())
				require.NoError(t, err)
				if len(problems) > 0 {
					t.Fatalf("step %d: %s\n%s", step, strings.Join(problems, "\n"), strings.Join(trace, "\n"))
				}
				if random.IntN(4) == 0 {
					requireViewEqualsRows(t, view, checker, random.Int64N(30))
				}
			}
			w.drain(t, t.Context(), random)
			w.verify(t, t.Context())
		})
	}
}

// The same by all nodes at once.
func TestRandomCommandsAtOnce(t *testing.T) {
	for _, seed := range seeds(t, 2) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Logf("replay with VARVE_SEED=%d, though the order of commands will differ", seed)
			db := kvtest.OpenFaulty(t, seed)
			db.SetRates(faults.Rates{UnknownCommitted: 0.05, UnknownLost: 0.05, Delay: 0.2, MaxDelay: 500 * time.Microsecond})
			store, err := Open(t.Context(), db, "test")
			require.NoError(t, err)
			checker, err := Open(t.Context(), db.Unwrap(), "test")
			require.NoError(t, err)
			w := newWorld(t, store)
			view := NewView(checker, ViewOptions{Node: 1, MaxStreams: 5, Poll: 20 * time.Millisecond})
			running, stop := context.WithCancel(t.Context())
			var group, viewers errgroup.Group
			viewers.Go(func() error { return view.Run(running) })
			for id := int64(1); id <= 3; id++ {
				a := newActor(t, t.Context(), w, id, rand.New(rand.NewPCG(seed, uint64(id))))
				group.Go(func() error {
					for range 400 {
						if err := a.step(t.Context()); err != nil {
							return err
						}
					}
					return nil
				})
			}
			viewers.Go(func() error {
				for running.Err() == nil {
					problems, err := checker.problems(t.Context())
					if err != nil || len(problems) > 0 {
						t.Errorf("%v %s", err, strings.Join(problems, "\n"))
						return nil
					}
					_, _ = view.Stream(t.Context(), 3)
				}
				return nil
			})
			err = group.Wait()
			stop()
			require.NoError(t, viewers.Wait())
			require.NoError(t, err)
			requireViewEqualsRows(t, view, checker, 3)
			w.drain(t, t.Context(), rand.New(rand.NewPCG(seed, 9)))
			problems, err := checker.problems(t.Context())
			require.NoError(t, err)
			require.Empty(t, problems)
			w.verify(t, t.Context())
		})
	}
}

// requireViewEqualsRows compares all that a view holds, and one stream that it is asked for.
func requireViewEqualsRows(t testing.TB, v *View, s *Store, ask int64) {
	t.Helper()
	ctx := t.Context()
	_, _ = v.Stream(ctx, ask) // so that it is kept, and has to follow the log
	require.NoError(t, v.Sync(ctx))
	asked, askedErr := v.Stream(ctx, ask)
	row, err := s.Stream(ctx, ask)
	require.Equal(t, err == nil, askedErr == nil)
	require.Equal(t, row, asked)

	nodes, err := s.Nodes(ctx)
	require.NoError(t, err)
	require.Equal(t, nodes, v.Nodes())
	tables, err := s.Tables(ctx, "", 1000)
	require.NoError(t, err)
	require.Equal(t, tables, v.Tables())
	for _, table := range tables {
		byName, ok := v.Table(table.Name)
		require.True(t, ok)
		require.Equal(t, table, byName)
		byUUID, ok := v.TableByUUID(table.UUID)
		require.True(t, ok)
		require.Equal(t, table, byUUID)
	}
	transfers, err := s.Transfers(ctx)
	require.NoError(t, err)
	require.Equal(t, append([]TransferRow{}, transfers...), v.Transfers())
	lease, err := s.Lease(ctx, CoordinatorLease)
	require.NoError(t, err)
	if seen, ok := v.Lease(CoordinatorLease); ok {
		seen.Renewals = lease.Renewals
		require.Equal(t, lease, seen)
	}
	led, err := s.Owned(ctx, 1, 0, 1000)
	require.NoError(t, err)
	byID := map[int64]StreamRow{}
	for _, r := range v.Led() {
		byID[r.ID] = r
	}
	for _, r := range led {
		require.Equal(t, r, byID[r.ID])
		delete(byID, r.ID)
	}
	for _, r := range byID {
		require.EqualValues(t, 1, r.OpenBy.ID, "%+v is neither led nor open", r)
		row, err := s.Stream(ctx, r.ID)
		require.NoError(t, err)
		require.Equal(t, row, r)
	}
	for id := range v.rows.asked {
		kept, _ := v.rows.known(id)
		row, err := s.Stream(ctx, id)
		require.NoError(t, err)
		require.Equal(t, row, kept.row)
	}
	require.LessOrEqual(t, v.rows.recent.Len(), 5)
}
