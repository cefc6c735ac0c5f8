package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv/tuple"
)

func TestDetectorCountsTheHoldersHeartbeats(t *testing.T) {
	d := newDetector(6)
	node := []layer.NodeRow{{ID: 1, Epoch: 1}, {ID: 2, Epoch: 4}}
	at := func(count int64) map[int64]layer.HeartbeatRow {
		return map[int64]layer.HeartbeatRow{2: {Epoch: 4, Count: count}}
	}
	require.Empty(t, d.look(node, at(10), 1, 100, 100), "the first look knows nothing")
	require.Empty(t, d.look(node, at(10), 1, 105, 105))
	require.Empty(t, d.look(node, at(11), 1, 200, 200), "it lives")
	for range 1000 { // time passes, the holder's heart stands still
		require.Empty(t, d.look(node, at(11), 1, 205, 205))
	}
	dead := d.look(node, at(11), 1, 206, 206)
	require.Len(t, dead, 1)
	require.Equal(t, layer.NodeRef{ID: 2, Epoch: 4}, dead[0].node)
	require.EqualValues(t, 11, dead[0].count)

	node[1].Epoch = 5 // it registers again: its clock starts anew
	require.Empty(t, d.look(node, at(11), 1, 300, 300))
	require.Empty(t, d.look(node, at(11), 1, 305, 305))
	node[1].Fenced = true
	require.Empty(t, d.look(node, at(11), 1, 400, 400), "once is enough")
}

func TestDetectorFavoursTheJudged(t *testing.T) {
	d := newDetector(2)
	node := []layer.NodeRow{{ID: 2, Epoch: 1}}
	counts := map[int64]layer.HeartbeatRow{2: {Epoch: 1, Count: 1}}
	d.look(node, counts, 1, 10, 20) // ten heartbeats went by while the rows were read: the sign of life may be of the last of them
	require.Empty(t, d.look(node, counts, 1, 21, 40))
	require.Len(t, d.look(node, counts, 1, 22, 22), 1)
}

func TestCandidateCountsOnlyTimeThatItLivedThrough(t *testing.T) {
	var w watched
	row := layer.LeaseRow{Name: "l", Holder: layer.NodeRef{ID: 1, Epoch: 1}, Epoch: 1, Renewals: 7}
	now := time.Now()
	late := 5 * time.Second
	require.Zero(t, w.observe(row, now, late))
	require.Equal(t, 3*time.Second, w.observe(row, now.Add(3*time.Second), late))
	row.Renewals++
	require.Zero(t, w.observe(row, now.Add(6*time.Second), late), "renewed")
	require.Equal(t, 4*time.Second, w.observe(row, now.Add(10*time.Second), late))
	require.Zero(t, w.observe(row, now.Add(time.Hour), late), "the candidate was away")
}

func TestPlacementPicksTheLeastLoadedPerSlot(t *testing.T) {
	l := newLoads([]layer.NodeRow{{ID: 3, Slots: 1}, {ID: 1, Slots: 2}, {ID: 2, Slots: 0}, {ID: 4, Slots: 1, Fenced: true}}, map[int64]int64{1: 2, 2: 0, 3: 2, 4: 0, 0: 9})
	require.Equal(t, []int64{1, 1, 1, 3}, []int64{l.pick(), l.pick(), l.pick(), l.pick()})
	require.Zero(t, newLoads(nil, nil).pick())
}

func TestOrphansAreStreamsOfNodesThatAreGone(t *testing.T) {
	nodes := []layer.NodeRow{{ID: 1}, {ID: 2, Fenced: true}, {ID: 5, Fenced: true}}
	require.Equal(t, []int64{0, 2, 9}, orphanedBy(nodes, map[int64]int64{0: 1, 1: 5, 2: 1, 5: 0, 9: 2}))
}

func TestRebalanceMovesFromTheFullToTheEmpty(t *testing.T) {
	l := newLoads([]layer.NodeRow{{ID: 1, Slots: 1}, {ID: 2, Slots: 1}, {ID: 3, Slots: 2}}, map[int64]int64{1: 80, 2: 19, 3: 1})
	gifts := l.even()
	require.Len(t, gifts, 1)
	require.EqualValues(t, 1, gifts[0].from)
	for _, row := range l.nodes {
		require.InDelta(t, 25, l.perSlot(row, 0), 2.5, "node %d", row.ID)
	}
	require.Empty(t, newLoads([]layer.NodeRow{{ID: 1, Slots: 1}, {ID: 2, Slots: 1}}, map[int64]int64{1: 52, 2: 48}).even())
	require.Empty(t, newLoads([]layer.NodeRow{{ID: 1, Slots: 1}, {ID: 2, Slots: 1}}, map[int64]int64{1: 1}).even(), "a swap is no gain")
	require.Empty(t, newLoads(nil, nil).even())
	small := newLoads([]layer.NodeRow{{ID: 1, Slots: 1}, {ID: 2, Slots: 1}, {ID: 3, Slots: 1}}, map[int64]int64{1: 8})
	require.Equal(t, []int64{2, 3, 2, 3, 2}, small.even()[0].to)
}

func TestBucketsGoRoundTheNodes(t *testing.T) {
	nodes := []layer.NodeRow{{ID: 1, Slots: 1}, {ID: 2, Slots: 0}, {ID: 3, Slots: 1}, {ID: 7, Slots: 3}}
	at := time.UnixMicro(3_000_001)
	require.Equal(t, []int64{3, 7, 1, 3}, spread(nodes, 0, 4, at))
	require.Equal(t, []int64{7, 1}, spread(nodes, 1, 2, at), "new buckets go on where the others ended")
	require.Equal(t, []int64{0, 0}, spread(nil, 0, 2, at))
}

func TestNames(t *testing.T) {
	for _, name := range []string{"a", "orders.v1", "A-b_c", strings.Repeat("x", 249)} {
		require.NoError(t, ValidateTopicName(name))
		require.NoError(t, ValidateName(name))
	}
	for _, name := range []string{"", ".", "..", "a/b", "a b", "ä", "a\x00", "a\n", strings.Repeat("x", 250), "a%20b"} {
		require.ErrorIs(t, ValidateTopicName(name), ErrInvalidName, "%q", name)
	}
	for _, name := range []string{"a/b/c", "/a", "a%20b", "users/42:inbox", "a~b", strings.Repeat("x", 1024), "a,b;c=d@e!f$g&h'i(j)k*l+m"} {
		require.NoError(t, ValidateName(name), "%q", name)
	}
	for _, name := range []string{"", "/", "//", "a//b", "a/", "a/../b", "./a", "a b", "a?b", "a#b", "a\x7fb", "ü", "a\\b", strings.Repeat("x", 1025)} {
		require.ErrorIs(t, ValidateName(name), ErrInvalidName, "%q", name)
	}
}

func TestTableOptionsAcceptTheirDefaultsAndRefuseNonsense(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range TableOptions() {
		require.False(t, seen[o.Name], o.Name)
		seen[o.Name] = true
		require.NotEmpty(t, o.Doc, o.Name)
		if o.Default != "" {
			require.NoError(t, o.Validate(o.Default), o.Name)
		}
		require.Error(t, o.Validate(strings.Repeat("x", 5000)), o.Name)
	}
	for name, value := range map[string]string{
		OptionCleanupPolicy: "compact", OptionRetentionMs: "-2", OptionRetentionBytes: "1.5", OptionMaxMessageBytes: "99999999999", OptionTimestampType: "now",
		OptionCompressionType: "gzip", OptionHTTPExpiresAt: "tomorrow", OptionHTTPContentType: "", OptionHTTPTTLSeconds: "-1", "remote.storage.enable": "true", "min.insync.replicas": "0", "nothing": "1",
	} {
		err := ValidateTableOptions(map[string]string{name: value})
		require.ErrorIs(t, err, ErrInvalidOption, name)
		var refused *InvalidOption
		require.ErrorAs(t, err, &refused)
		require.Equal(t, name, refused.Name)
	}
	require.NoError(t, ValidateTableOptions(map[string]string{OptionRetentionMs: "-1", "segment.bytes": "1048576", "min.insync.replicas": "2", OptionHTTPContentType: "application/json"}))
	require.Equal(t, "604800000", OptionValue(nil, OptionRetentionMs))
	require.Equal(t, "5", OptionValue(map[string]string{OptionRetentionMs: "5"}, OptionRetentionMs))
}

func TestOptionsAreChecked(t *testing.T) {
	require.NoError(t, DefaultOptions().Validate())
	require.EqualValues(t, 6, DefaultOptions().deadAfter())
	o := DefaultOptions()
	o.NodeTimeout = o.HeartbeatInterval
	require.ErrorContains(t, o.Validate(), "node-timeout")
	o = DefaultOptions()
	o.NodeTimeout = o.HeartbeatInterval*2 + 1
	require.EqualValues(t, 3, o.deadAfter())
	for what, change := range map[string]func(*Options){
		"node-id": func(o *Options) { o.NodeID = 0 }, "slots": func(o *Options) { o.Slots = -1 }, "lease-ttl": func(o *Options) { o.LeaseTTL = 0 },
		"wal-fence": func(o *Options) { o.Fence = "maybe" }, "sync-concurrency": func(o *Options) { o.SyncConcurrency = 0 }, "pack-bytes": func(o *Options) { o.Engine.PackBytes = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		require.ErrorContains(t, o.Validate(), what)
	}
}

func TestLoopRetriesTriggersAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLoopClock()
		ctx, cancel := context.WithCancel(t.Context())
		l := newLoop("test", time.Minute, discardLogger(), c.step)
		l.jitter = 0
		done := make(chan struct{})
		go func() { defer close(done); l.run(ctx) }()
		synctest.Wait()
		require.EqualValues(t, 1, c.steps.Load(), "the first step is at once")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 2, c.steps.Load())
		l.trigger()
		synctest.Wait()
		require.EqualValues(t, 3, c.steps.Load(), "a trigger needs no interval")
		c.err.Store(true)
		l.trigger()
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 7, c.steps.Load(), "at 0, 100, 300 and 700 ms")
		c.err.Store(false)
		time.Sleep(time.Second)
		cancel()
		<-done
	})
}

type loopClock struct {
	steps atomic.Int64
	err   atomic.Bool
}

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newLoopClock() *loopClock { return &loopClock{} }

func (c *loopClock) step(context.Context) error {
	c.steps.Add(1)
	if c.err.Load() {
		return errors.New("no luck")
	}
	return nil
}

func TestPoolRunsOneJobPerStreamAndABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		p := newPool(3, &wg)
		require.NoError(t, p.wait(t.Context()), "an idle pool is drained")
		var running, most atomic.Int64
		job := func(context.Context) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
		}
		for id := range int64(10) {
			require.True(t, p.submit(t.Context(), id, job))
			require.False(t, p.submit(t.Context(), id, job), "one job per stream")
		}
		require.Equal(t, 10, p.size())
		began := time.Now()
		require.NoError(t, p.wait(t.Context()))
		require.Equal(t, 4*time.Second, time.Since(began))
		require.EqualValues(t, 3, most.Load())
		require.True(t, p.submit(t.Context(), 1, job), "it can be submitted again")
		require.NoError(t, p.wait(t.Context()))
		wg.Wait()
	})
}

func TestNotLeaderNamesTheLeader(t *testing.T) {
	require.Contains(t, (&NotLeader{Leader: layer.NodeRow{ID: 3}, LeaderEpoch: 7, Table: "t", Bucket: 2}).Error(), "node 3")
	require.Contains(t, (&NotLeader{Table: "t"}).Error(), "no live leader")
	require.ErrorIs(t, fmt.Errorf("x: %w", &InvalidOption{}), ErrInvalidOption)
}

func TestMetadataLogIsTrimmedByAge(t *testing.T) {
	var l logTrimmer
	now := time.Now()
	l.mark(tuple.Versionstamp{User: 1}, now, time.Hour)
	l.mark(tuple.Versionstamp{User: 9}, now.Add(time.Second), time.Hour) // too soon for another mark
	l.mark(tuple.Versionstamp{User: 2}, now.Add(30*time.Minute), time.Hour)
	_, ok := l.due(now.Add(59*time.Minute), time.Hour)
	require.False(t, ok)
	at, ok := l.due(now.Add(time.Hour), time.Hour)
	require.True(t, ok)
	require.EqualValues(t, 1, at.User)
	at, ok = l.due(now.Add(2*time.Hour), time.Hour)
	require.True(t, ok)
	require.EqualValues(t, 2, at.User)
}

func TestEveryFinishedLogIsSweptSeveralTimes(t *testing.T) {
	var rows []layer.WALRow
	for epoch := int64(1); epoch <= 25; epoch++ {
		rows = append(rows, layer.WALRow{Node: layer.NodeRef{ID: 1, Epoch: epoch}, Done: epoch != 25})
	}
	s := newSweeper()
	total := 0
	for {
		due := s.next(rows)
		if len(due) == 0 {
			break
		}
		require.LessOrEqual(t, len(due), sweepLogs)
		for _, row := range due {
			require.True(t, row.Done)
			s.count(row.Node, 0)
			total++
		}
	}
	require.Equal(t, 24*sweeps, total)
	// One in which a sweep still finds something is swept again.
	late := layer.NodeRef{ID: 2, Epoch: 1}
	for range 2 * sweeps {
		s.count(late, 1)
	}
	require.Equal(t, sweeps-1, s.swept[late])
	s.count(late, 0)
	require.Equal(t, sweeps, s.swept[late])
}
