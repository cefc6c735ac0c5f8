package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
)

// story keeps what nodes log, one JSON object a line.
type story struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *story) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// lines gives the entries in order.
func (s *story) lines(t *testing.T) []map[string]any {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []map[string]any
	decoder := json.NewDecoder(bytes.NewReader(s.text.Bytes()))
	for decoder.More() {
		var entry map[string]any
		require.NoError(t, decoder.Decode(&entry))
		list = append(list, entry)
	}
	return list
}

func TestLogTellsTheStoryOfAFailover(t *testing.T) {
	c := newCluster(t)
	s := &story{}
	c.logger = slog.New(slog.NewJSONHandler(s, nil))
	nodes := c.startAll(2)
	f := c.traffic(4)
	f.flow(2)
	nodes[1].abandon()
	f.flow(1)

	want := []struct {
		message string
		fields  map[string]any
	}{
		{"node is dead: it gave no sign of life", map[string]any{"dead": "2@1", "lease_epoch": 1.0}},
		{"node fenced", map[string]any{"dead": "2@1", "lease_epoch": 1.0}},
		{"takeover begins", map[string]any{"dead": "2@1"}},
		{"write-ahead log recovered and sealed", map[string]any{"dead": "2@1"}},
		{"streams closed", map[string]any{"dead": "2@1", "streams": 2.0}},
		{"takeover done", map[string]any{"dead": "2@1", "streams": 2.0}},
		{"streams placed", map[string]any{"from": 2.0, "streams": 2.0, "lease_epoch": 1.0}},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.text.String())
		}
	})
	c.eventually("the story is complete", func() bool {
		next := 0
		for _, line := range s.lines(t) {
			if next < len(want) && line["msg"] == want[next].message {
				require.EqualValues(t, 1, line["node"])
				require.EqualValues(t, 1, line["node_epoch"])
				for field, value := range want[next].fields {
					require.Equal(t, value, line[field], "%s of %q", field, line["msg"])
				}
				next++
			}
		}
		return next == len(want)
	})
}

func TestTransferToANodeThatDiesIsGivenUp(t *testing.T) {
	c, nodes, f := busyCluster(t, 2, 2, 2)
	c.store.SetOutage(true) // the source cannot pack, so it cannot close
	_, err := nodes[0].Transfer(c.ctx(), "t", f.ledBy(nodes[0]), 2)
	require.NoError(t, err)
	nodes[1].abandon()
	c.eventually("the target is fenced", func() bool { row, ok := nodes[0].view.Node(2); return ok && row.Fenced })
	c.store.SetOutage(false)
	f.flow(2)
	f.check()
	require.Equal(t, 2, nodes[0].serving())
	list, err := nodes[0].Transfers(c.ctx())
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestStreamThatWasNeverOpenedCanMove(t *testing.T) {
	c := newCluster(t)
	nodes := c.startAll(2)
	source := nodes[1]
	source.pause.close() // it does not come to open what it leads
	row, err := nodes[0].CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 2})
	require.NoError(t, err)
	streams, err := nodes[0].layer.Streams(c.ctx(), row.ID)
	require.NoError(t, err)
	for _, stream := range streams {
		if stream.Leader == 2 {
			_, err := nodes[0].Transfer(c.ctx(), "t", stream.Bucket, 1)
			require.NoError(t, err)
		}
	}
	source.pause.open()
	c.eventually("it has moved", func() bool { return nodes[0].serving() == 2 })
	f := &traffic{client: c.client(), acked: newChecker(), buckets: 2}
	f.flow(1)
	f.check()
}

func TestDamagedLogHoldsUpOnlyItsStreams(t *testing.T) {
	c := newCluster(t)
	c.options.WAL.InlineMax = -1
	c.options.Engine.PackInterval = time.Hour
	n := c.start(1)
	_, err := n.CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: 1})
	require.NoError(t, err)
	p := c.client()
	_, err = p.append(c.ctx(), "t", 0, 0, 1)
	require.NoError(t, err)
	row, err := n.layer.WAL(c.ctx(), n.ref)
	require.NoError(t, err)
	key := wal.SegmentKey("test", n.ref, row.Incarnation, layer.FirstSegment)
	body, ok := c.store.Body(key)
	require.True(t, ok)
	n.abandon()
	broken := bytes.Clone(body)
	broken[len(broken)-1] ^= 0xff
	c.store.Set(key, broken)

	n = c.start(1)
	_, err = n.CreateTable(c.ctx(), CreateTable{Name: "u", Buckets: 1})
	require.NoError(t, err)
	_, err = p.append(c.ctx(), "u", 0, 0, 1)
	require.NoError(t, err, "other streams are served")
	ctx, cancel := context.WithTimeout(c.ctx(), 300*time.Millisecond)
	defer cancel()
	_, err = n.Stream(ctx, "t", 0)
	require.ErrorIs(t, err, ErrUnavailable, "records are not passed over")
	now, ok := c.store.Body(key)
	require.True(t, ok, "nothing is deleted")
	require.Equal(t, broken, now)

	c.store.Set(key, body) // the operator has restored it
	result, err := p.append(c.ctx(), "t", 0, 0, 1)
	require.NoError(t, err)
	require.True(t, result.Duplicate)
	require.Zero(t, result.Base)
}

// Nodes that are all stopped at once leave each other's logs half recovered: that is nothing to be told of as an error.
func TestStopOfAllNodesLogsNoError(t *testing.T) {
	c := newCluster(t)
	s := &story{}
	c.logger = slog.New(slog.NewJSONHandler(s, nil))
	nodes := c.startAll(3)
	f := c.traffic(9)
	f.flow(2)
	var stopping sync.WaitGroup
	for _, n := range nodes {
		stopping.Go(func() {
			if err := n.Stop(c.ctx()); err != nil {
				t.Errorf("stop of node %d: %v", n.ref.ID, err)
			}
		})
	}
	stopping.Wait()
	for _, line := range s.lines(t) {
		require.Equal(t, "INFO", line["level"], line)
	}
}

// A fenced node says so once, and no loop of it complains besides.
func TestFencedNodeSaysItOnce(t *testing.T) {
	c := newCluster(t)
	s := &story{}
	c.logger = slog.New(slog.NewJSONHandler(s, nil))
	nodes := c.startAll(2)
	for _, n := range []*member{nodes[1], nodes[0]} { // the one without and the one with the lease
		var holder *member
		c.eventually("a live node holds the lease", func() bool {
			for _, m := range c.alive() {
				if m.tenure.Load() != nil {
					holder = m
				}
			}
			return holder != nil
		})
		require.NoError(t, holder.FenceNode(c.ctx(), n.ref.ID))
		<-n.Done()
		require.ErrorIs(t, n.Err(), ErrFenced)
	}
	said := map[any][]any{}
	for _, line := range s.lines(t) {
		if line["level"] != "INFO" && line["msg"] != "node fenced by an operator" {
			said[line["node"]] = append(said[line["node"]], line["msg"])
		}
	}
	once := []any{"node is fenced or broken: it stops serving"}
	require.Equal(t, map[any][]any{1.0: once, 2.0: once}, said)
}
