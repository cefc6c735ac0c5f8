package kafka

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kvtest"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// site is a cluster in one process: an embedded database, a fake object store, and nodes with a Kafka listener each.
type site struct {
	t      testing.TB
	db     kv.Database
	store  *objectstest.Fake
	logger *slog.Logger
	logs   *logBuffer
	nodes  []*siteNode
}

// siteNode is one node and its listener.
type siteNode struct {
	node   *nodes.Node
	server *Server
	addr   string

	log     *logBuffer
	serving chan error // what Serve returned
}

// logBuffer keeps what was logged, for tests that look for a line.
type logBuffer struct {
	t    testing.TB
	mu   sync.Mutex
	text []byte
	over bool // the test has ended: no more may be logged by it

	muted bool
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.muted {
		return len(p), nil
	}
	b.text = append(b.text, p...)
	if !b.over {
		b.t.Logf("%s", p[:len(p)-1])
	}
	return len(p), nil
}

// mute keeps nothing from now on.
func (b *logBuffer) mute() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.muted = true
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}

func newSite(t testing.TB) *site {
	t.Helper()
	db := kvtest.Open(t)
	logs := &logBuffer{t: t}
	s := &site{t: t, db: db, store: objectstest.NewFake(), logs: logs, logger: slog.New(slog.NewTextHandler(io.Writer(logs), &slog.HandlerOptions{Level: slog.LevelWarn}))}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, n := range s.nodes {
			require.NoError(t, n.server.Shutdown(ctx))
			require.ErrorIs(t, <-n.serving, ErrServerClosed)
		}
		for _, n := range s.nodes {
			_ = n.node.Stop(ctx)
		}
		logs.mu.Lock()
		defer logs.mu.Unlock()
		logs.over = true
	})
	return s
}

// start adds a node with a listener on a free port and waits until it serves.
func (s *site) start(change ...func(*Options)) *siteNode {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	o := nodes.DefaultOptions()
	o.NodeID = int64(len(s.nodes) + 1)
	o.AdvertisedKafka = l.Addr().String()
	o.LeaseTTL, o.DetectorInterval = time.Second, 50*time.Millisecond
	o.SyncInterval, o.CoordinatorTick = 200*time.Millisecond, 200*time.Millisecond
	o.Engine.BlockCacheBytes = 16 << 20
	meta, err := layer.Open(ctx, s.db, "site")
	require.NoError(s.t, err)
	node, err := nodes.New(o, meta, s.store, s.logger, nodes.NewMetrics(nil))
	require.NoError(s.t, err)
	require.NoError(s.t, node.Start(ctx))
	options := DefaultOptions()
	for _, f := range change {
		f(&options)
	}
	server, err := NewServer(options, node, s.logger, NewMetrics(nil))
	require.NoError(s.t, err)
	n := &siteNode{node: node, server: server, addr: l.Addr().String(), log: s.logs, serving: make(chan error, 1)}
	s.nodes = append(s.nodes, n)
	go func() { n.serving <- server.Serve(context.Background(), l) }()
	require.NoError(s.t, node.AwaitReady(ctx))
	return n
}

// oneNode is a site of one node.
func oneNode(t testing.TB, change ...func(*Options)) *siteNode {
	t.Helper()
	s := newSite(t)
	return s.start(change...)
}

// client is a franz-go client of the node.
func (n *siteNode) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.addr), kgo.RetryTimeout(patience), kgo.AllowAutoTopicCreation(), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func (n *siteNode) admin(t testing.TB) *kadm.Client {
	t.Helper()
	return kadm.NewClient(n.client(t))
}

// create makes a topic.
func (n *siteNode) create(t testing.TB, topic string, partitions int32, configs map[string]*string) {
	t.Helper()
	_, err := n.admin(t).CreateTopic(t.Context(), partitions, 1, configs, topic)
	require.NoError(t, err)
}

// wire is a bare connection to a node, for what no client would send.
type wire struct {
	t    testing.TB
	conn net.Conn
	next int32
}

func (n *siteNode) wire(t testing.TB) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", n.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &wire{t: t, conn: conn}
}

// send sends a request and gives its correlation id.
func (w *wire) send(version int16, k kmsg.Request) int32 {
	w.t.Helper()
	k.SetVersion(version)
	w.next++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire")).AppendRequest(nil, k, w.next)
	_, err := w.conn.Write(frame)
	require.NoError(w.t, err)
	return w.next
}

// frame reads one response: its correlation id and what follows.
func (w *wire) frame() (correlation int32, body []byte) {
	w.t.Helper()
	var size [4]byte
	_, err := io.ReadFull(w.conn, size[:])
	require.NoError(w.t, err)
	body = make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(w.conn, body)
	require.NoError(w.t, err)
	return int32(binary.BigEndian.Uint32(body)), body[4:]
}

// into reads one response into buffer.
func (w *wire) into(buffer []byte) []byte {
	var size [4]byte
	_, err := io.ReadFull(w.conn, size[:])
	require.NoError(w.t, err)
	n := int(binary.BigEndian.Uint32(size[:]))
	if cap(buffer) < n {
		buffer = make([]byte, n)
	}
	_, err = io.ReadFull(w.conn, buffer[:n])
	require.NoError(w.t, err)
	return buffer[:n]
}

// receive reads the response to a request of that kind and version.
func receive[R kmsg.Response](w *wire, version int16, k kmsg.Request) R {
	w.t.Helper()
	_, body := w.frame()
	return decodeResponse[R](w.t, version, k, body)
}

func decodeResponse[R kmsg.Response](t testing.TB, version int16, k kmsg.Request, body []byte) R {
	t.Helper()
	k.SetVersion(version)
	if k.IsFlexible() && k.Key() != keyAPIVersions {
		require.Equal(t, byte(0), body[0], "tags of the response's header")
		body = body[1:]
	}
	response := k.ResponseKind()
	response.SetVersion(version)
	require.NoError(t, response.ReadFrom(body))
	require.Equal(t, body, response.AppendTo(nil), "nothing is left over")
	return response.(R)
}

// ask sends a request and reads its response.
func ask[R kmsg.Response](w *wire, version int16, k kmsg.Request) R {
	w.t.Helper()
	correlation := w.send(version, k)
	got, body := w.frame()
	require.Equal(w.t, correlation, got)
	return decodeResponse[R](w.t, version, k, body)
}

// closed waits until the node has closed the connection, and gives what it sent before.
func (w *wire) closed() []byte {
	w.t.Helper()
	rest, err := io.ReadAll(w.conn)
	if err != nil {
		var timeout net.Error
		require.False(w.t, asTimeout(err, &timeout), "the connection was not closed")
	}
	return rest
}

func asTimeout(err error, timeout *net.Error) bool {
	e, ok := err.(net.Error)
	*timeout = e
	return ok && e.Timeout()
}

// produce makes a Produce request of one batch for one partition.
func produceOf(topic string, partition int32, raw []byte) *kmsg.ProduceRequest {
	k := kmsg.NewPtrProduceRequest()
	k.Acks, k.TimeoutMillis = -1, 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, raw
	t.Partitions = append(t.Partitions, p)
	k.Topics = append(k.Topics, t)
	return k
}

// fetchOf makes a Fetch request of one partition.
func fetchOf(topic string, partition int32, offset int64) *kmsg.FetchRequest {
	k := kmsg.NewPtrFetchRequest()
	k.MaxWaitMillis, k.MinBytes, k.MaxBytes, k.SessionEpoch = 10_000, 1, 10<<20, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, offset, 10<<20, -1
	t.Partitions = append(t.Partitions, p)
	k.Topics = append(k.Topics, t)
	return k
}

func str(s string) *string { return &s }
