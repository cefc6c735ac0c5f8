package kafka

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes/batch"
)

func one(value string) []byte {
	return batch.Build([]batch.Record{{Timestamp: 1000, Value: []byte(value)}}, batch.BuildOptions{})
}

func TestApiVersionsOfAnUnknownVersionIsAnsweredInVersion0(t *testing.T) { // case 1
	w := oneNode(t).wire(t)
	frame := []byte{0, 0, 0, 10, 0, 18, 0x7f, 0xff, 0, 0, 0, 99, 0xff, 0xff} // version 32767, correlation id 99, then anything
	_, err := w.conn.Write(frame)
	require.NoError(t, err)
	var answer [4 + 4 + 2 + 4 + 6]byte
	_, err = io.ReadFull(w.conn, answer[:])
	require.NoError(t, err)
	require.Equal(t, [20]byte{0, 0, 0, 16, 0, 0, 0, 99, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4}, answer)
	versions := ask[*kmsg.ApiVersionsResponse](w, 3, kmsg.NewPtrApiVersionsRequest())
	require.Len(t, versions.ApiKeys, len(w.served(t)), "the connection stays usable")
}

// served is what the node lists.
func (w *wire) served(t *testing.T) map[int16][2]int16 {
	versions := ask[*kmsg.ApiVersionsResponse](w, 0, kmsg.NewPtrApiVersionsRequest())
	require.Zero(t, versions.ErrorCode)
	m := map[int16][2]int16{}
	for _, k := range versions.ApiKeys {
		m[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return m
}

func TestEveryListedVersionIsAnswered(t *testing.T) {
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	for key, versions := range w.served(t) {
		for version := versions[0]; version <= versions[1]; version++ {
			k := kmsg.RequestForKey(key)
			k.SetVersion(version)
			if p, ok := k.(*kmsg.ProduceRequest); ok {
				p.Acks = 1
			}
			correlation := w.send(version, k)
			got, body := w.frame()
			require.Equal(t, correlation, got)
			decodeResponse[kmsg.Response](t, version, k, body)
		}
	}
}

func TestUnsupportedRequestsCloseTheConnection(t *testing.T) {
	n := oneNode(t)
	for name, k := range map[string]kmsg.Request{"key": kmsg.NewPtrSyncGroupRequest(), "version": kmsg.NewPtrListOffsetsRequest()} {
		w := n.wire(t)
		w.send(0, k)
		require.Empty(t, w.closed(), name)
	}
}

func TestResponsesComeInTheOrderOfRequests(t *testing.T) { // case 14
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	n.create(t, "empty", 1, nil)
	w := n.wire(t)
	var want []int32
	for range 5 {
		want = append(want, w.send(9, produceOf("t", 0, one("x"))))
	}
	blocked := fetchOf("empty", 0, 0)
	blocked.MaxWaitMillis = 300
	want = append(want, w.send(12, blocked), w.send(9, kmsg.NewPtrMetadataRequest()))
	for range 5 { // while the Fetch is blocked, these are appended
		want = append(want, w.send(9, produceOf("t", 0, one("y"))))
	}
	other := n.wire(t)
	require.Eventually(t, func() bool {
		f := fetchOf("t", 0, 0)
		f.MaxWaitMillis = 0
		return ask[*kmsg.FetchResponse](other, 12, f).Topics[0].Partitions[0].HighWatermark == 10
	}, patience, 5*time.Millisecond)
	var got []int32
	for range want {
		correlation, _ := w.frame()
		got = append(got, correlation)
	}
	require.Equal(t, want, got)
}

func TestPipelinedProduceKeepsItsOrder(t *testing.T) {
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	const requests = 60
	for range requests {
		w.send(9, produceOf("t", 0, one("x")))
	}
	for i := range requests {
		response := receive[*kmsg.ProduceResponse](w, 9, kmsg.NewPtrProduceRequest())
		require.Equal(t, int64(i), response.Topics[0].Partitions[0].BaseOffset)
	}
}

func TestASlowReaderCostsBoundedMemory(t *testing.T) { // case 14
	n := oneNode(t, func(o *Options) { o.InflightRequests, o.WriteTimeout = 8, time.Hour })
	n.create(t, "t", 1, map[string]*string{"max.message.bytes": str("8000000")})
	w := n.wire(t)
	value := strings.Repeat("v", 4<<20)
	require.Zero(t, ask[*kmsg.ProduceResponse](w, 9, produceOf("t", 0, one(value))).Topics[0].Partitions[0].ErrorCode)

	slow := n.wire(t)
	sent := make(chan struct{})
	go func() { // the node stops reading, so that this blocks until the end of the connection
		defer close(sent)
		frame := kmsg.NewRequestFormatter().AppendRequest(nil, versioned(12, fetchOf("t", 0, 0)), 1)
		for range 20_000 {
			if _, err := slow.conn.Write(frame); err != nil {
				return
			}
		}
	}()
	connection := n.only(t, slow.conn)
	require.Eventually(t, func() bool { return connection.inflight.state().requests == 8 }, patience, time.Millisecond)
	for range 50 {
		time.Sleep(time.Millisecond) // a window in which it must not grow, rather than a wait for something
		state := connection.inflight.state()
		require.LessOrEqual(t, state.requests, 8)
		require.LessOrEqual(t, state.bytes, 6<<20, "one response, and the requests")
	}
	require.NoError(t, slow.conn.Close())
	<-sent
}

func versioned(version int16, k kmsg.Request) kmsg.Request {
	k.SetVersion(version)
	return k
}

// only finds the node's side of a connection.
func (n *siteNode) only(t *testing.T, conn net.Conn) (found *connection) {
	require.Eventually(t, func() bool {
		n.server.mu.Lock()
		defer n.server.mu.Unlock()
		for c := range n.server.connections {
			if c.peer == conn.LocalAddr().String() {
				found = c
			}
		}
		return found != nil
	}, patience, time.Millisecond)
	return found
}

type inflightState struct{ requests, bytes int }

func (f *inflight) state() inflightState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return inflightState{f.requests, f.bytes}
}

func TestMalformedBytesCloseThatConnectionAlone(t *testing.T) { // case 30
	n := oneNode(t)
	good := n.wire(t)
	flexible := versioned(9, kmsg.NewPtrMetadataRequest())
	whole := kmsg.NewRequestFormatter().AppendRequest(nil, flexible, 7)
	cut := slices.Clone(whole[:len(whole)-3])
	binary.BigEndian.PutUint32(cut, uint32(len(cut)-4))
	produce := kmsg.NewRequestFormatter().AppendRequest(nil, versioned(9, produceOf("t", 0, one("x"))), 7)
	cutProduce := slices.Clone(produce[:len(produce)-30])
	binary.BigEndian.PutUint32(cutProduce, uint32(len(cutProduce)-4))
	cases := map[string][]byte{
		"size -1":        {0xff, 0xff, 0xff, 0xff, 0, 18, 0, 0},
		"size 2 GiB":     {0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"size 0":         {0, 0, 0, 0, 0, 18, 0, 0},
		"an HTTP GET":    []byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
		"a TLS hello":    {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 1},
		"cut body":       cut,
		"cut Produce":    cutProduce,
		"a topic array":  kmsgArray(1 << 30),
		"cut client id":  {0, 0, 0, 12, 0, 18, 0, 0, 0, 0, 0, 1, 0x7f, 0xff, 'x', 'y'},
		"no such key":    {0, 0, 0, 10, 0x0f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"a negative key": {0, 0, 0, 10, 0xff, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
	}
	for name, bytes := range cases {
		w := n.wire(t)
		_, err := w.conn.Write(bytes)
		require.NoError(t, err)
		require.Empty(t, w.closed(), name)
		logged := n.log.String()
		require.Contains(t, logged, w.conn.LocalAddr().String(), "%s: the peer is named", name)
		require.Equal(t, 1, strings.Count(logged, w.conn.LocalAddr().String()), "%s: one line", name)
	}
	require.NotEmpty(t, good.served(t), "other connections live on")
}

// kmsgArray is a Metadata request of version 1 that claims so many topics.
func kmsgArray(topics uint32) []byte {
	frame := []byte{0, 0, 0, 16, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff}
	frame = binary.BigEndian.AppendUint32(frame, topics)
	return append(frame, 0, 0)
}

func TestUnknownTaggedFieldsAreSkipped(t *testing.T) { // case 30
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	produce := produceOf("t", 0, one("x"))
	produce.UnknownTags.Set(99, []byte("whatever"))
	produce.Topics[0].Partitions[0].UnknownTags.Set(7, make([]byte, 300))
	require.Zero(t, ask[*kmsg.ProduceResponse](w, 9, produce).Topics[0].Partitions[0].ErrorCode)
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.UnknownTags.Set(math.MaxInt32, nil)
	require.NotEmpty(t, ask[*kmsg.MetadataResponse](w, 12, metadata).Topics)
}

func TestTooManyConnectionsAreClosedAtOnce(t *testing.T) {
	n := oneNode(t, func(o *Options) { o.MaxConnections = 2 })
	a, b := n.wire(t), n.wire(t)
	require.NotEmpty(t, a.served(t))
	require.NotEmpty(t, b.served(t))
	require.Empty(t, n.wire(t).closed())
	require.NoError(t, a.conn.Close())
	require.Eventually(t, func() bool {
		c := n.wire(t)
		_, err := c.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1))
		if err != nil {
			return false
		}
		_, err = io.ReadFull(c.conn, make([]byte, 4))
		return err == nil
	}, patience, 10*time.Millisecond)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	n := oneNode(t, func(o *Options) { o.IdleTimeout = 50 * time.Millisecond })
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	k := fetchOf("t", 0, 0)
	k.MaxWaitMillis = 300
	ask[*kmsg.FetchResponse](w, 12, k) // waiting for an answer is not being idle
	require.Empty(t, w.closed())
}

// takes calls send, which sends one request, and waits until the server has the whole of it. A shutdown drops what it has in part.
func (n *siteNode) takes(t *testing.T, send func()) {
	t.Helper()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(n.server.metrics.ReceivedBytes))
	taken := func() float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		return families[0].GetMetric()[0].GetCounter().GetValue()
	}
	before := taken()
	send()
	require.Eventually(t, func() bool { return taken() > before }, patience, time.Millisecond)
}

func TestShutdownAnswersWhatIsInFlight(t *testing.T) {
	s := newSite(t)
	n := s.start()
	n.create(t, "t", 1, nil)
	w, idle := n.wire(t), n.wire(t)
	require.NotEmpty(t, idle.served(t))
	k := fetchOf("t", 0, 0)
	k.MaxWaitMillis = 3_600_000
	n.takes(t, func() { w.send(12, k) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, n.server.Shutdown(ctx))
	require.NoError(t, n.server.Shutdown(ctx), "again")
	response := receive[*kmsg.FetchResponse](w, 12, k)
	require.Equal(t, kerr.NotLeaderForPartition.Code, response.Topics[0].Partitions[0].ErrorCode)
	require.Empty(t, w.closed())
	require.Empty(t, idle.closed())
	_, err := net.Dial("tcp", n.addr)
	require.Error(t, err)
}

func TestShutdownClosesWhatDoesNotEnd(t *testing.T) {
	s := newSite(t)
	n := s.start()
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	s.store.SetOutage(true)
	n.takes(t, func() { w.send(9, produceOf("t", 0, one(strings.Repeat("x", 900_000)))) }) // too large to go inline: waits for the store
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, n.server.Shutdown(ctx), context.DeadlineExceeded)
	require.Empty(t, w.closed())
	s.store.SetOutage(false)
}

// TestReadmeListsWhatIsServed compares the table in README.md with the code.
func TestReadmeListsWhatIsServed(t *testing.T) {
	documented := readmeVersions(t)
	s := &Server{options: DefaultOptions()}
	for key, a := range s.servedAPIs() {
		require.Equal(t, documented[key], [3]any{a.name, a.min, a.max}, "README.md, key %d", key)
		delete(documented, key)
	}
	require.Empty(t, documented, "README.md lists what is not served")
}
