package process

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/embedded/remote"
	"github.com/varvedb/varve/layer/fdb/fdbtest"
	"github.com/varvedb/varve/layer/kvtest"
	"github.com/varvedb/varve/nodes"
)

// Cluster is several nodes over one metadata store and one object store.
type Cluster struct {
	Nodes    []*Node
	t        testing.TB
	metadata *metadataServer // nil on FoundationDB
	lines    []Line          // to the fake FoundationDB
}

// NewCluster makes nodes with the ids from 1 up, none of which runs. Their metadata lies in an engine that this process serves, or in the
// FoundationDB of kvtest's variables; their objects, without Options.Storage, in a directory.
func NewCluster(t testing.TB, count int, options Options) *Cluster {
	t.Helper()
	if options.Storage == "" {
		options.Storage = "file://" + t.TempDir()
	}
	c := &Cluster{t: t}
	shared := metadata(t, options)
	if shared == nil {
		c.metadata = serveMetadata(t)
		shared = []string{"--metadata-socket", c.metadata.path}
	}
	for id := 1; id <= count; id++ {
		own := options
		own.id = int64(id)
		c.line(&own)
		own.Args = append(append([]string{"--node-id", strconv.Itoa(id)}, shared...), options.Args...)
		c.Nodes = append(c.Nodes, newNode(t, own))
	}
	return c
}

// line puts a line between a node and the fake FoundationDB of the environment; nil when the metadata lies elsewhere.
func (c *Cluster) line(node *Options) Line {
	clusterFile := os.Getenv(kvtest.ClusterFileVariable)
	if c.metadata != nil || clusterFile == "" {
		return nil
	}
	line := fdbtest.NewLine(c.t, clusterFile)
	if line == nil {
		return nil
	}
	node.Env = append(node.Env[:len(node.Env):len(node.Env)], line.Environment())
	c.lines = append(c.lines, line)
	return line
}

// metadataServer serves an engine in memory on a socket.
type metadataServer struct {
	t      testing.TB
	path   string
	engine *embedded.DB
	stop   func()
}

// serveMetadata serves an engine in memory until the test ends.
func serveMetadata(t testing.TB) *metadataServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "varve") // the paths of t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	m := &metadataServer{t: t, path: filepath.Join(dir, "metadata"), engine: kvtest.OpenEmbedded(t, embedded.Options{})}
	m.start()
	t.Cleanup(func() {
		m.stop()
		os.RemoveAll(dir)
	})
	return m
}

func (m *metadataServer) start() {
	m.t.Helper()
	l, err := remote.Listen(m.path)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- remote.Serve(ctx, l, m.engine, slog.New(slog.DiscardHandler)) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			m.t.Errorf("serve the metadata: %v", err)
		}
	})
}

// NeedsCuts skips the test when the metadata lies in a real FoundationDB, which nodes cannot be cut off from.
func (c *Cluster) NeedsCuts() {
	c.t.Helper()
	if c.metadata == nil && c.lines == nil {
		c.t.Skip("the metadata is in a FoundationDB that others use, too: nodes cannot be cut off from it")
	}
}

// CutMetadata takes the metadata away from every node until back is called, where NeedsCuts lets the test go on.
func (c *Cluster) CutMetadata() (back func()) {
	c.t.Helper()
	if c.metadata != nil {
		c.metadata.stop()
		return c.metadata.start
	}
	for _, line := range c.lines {
		line.Cut()
	}
	return func() {
		for _, line := range c.lines {
			line.Heal()
		}
	}
}

// Start starts every node and returns when all are ready.
func (c *Cluster) Start() {
	c.t.Helper()
	for _, n := range c.Nodes {
		n.Start()
	}
	for _, n := range c.Nodes {
		n.AwaitReady()
	}
}

// Node is the node with an id.
func (c *Cluster) Node(id int64) *Node { return c.Nodes[id-1] }

// Kafka gives the Kafka addresses of all nodes.
func (c *Cluster) Kafka() []string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Addresses.Kafka)
	}
	return all
}

// Running lists the nodes whose processes have not ended.
func (c *Cluster) Running() []*Node {
	var running []*Node
	for _, n := range c.Nodes {
		if n.Running() {
			running = append(running, n)
		}
	}
	return running
}

// settleTimeout bounds how long a cluster may take to do what it must.
const settleTimeout = 90 * time.Second

// Await waits until done is true, and fails the test after a time.
func (c *Cluster) Await(what string, done func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(settleTimeout)
	for !done() {
		if time.Now().After(deadline) {
			c.t.Fatalf("after %v not yet: %s", settleTimeout, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Streams tells of the streams of a table, as a node other than the given ones reads them.
func (c *Cluster) Streams(table string, not ...*Node) ([]nodes.BucketStatus, error) {
	var body struct {
		Streams []nodes.BucketStatus `json:"streams"`
	}
	err := c.ask("/admin/streams/"+url.PathEscape(table), &body, not)
	return body.Streams, err
}

// Statuses tells of every node, as one other than the given ones sees them.
func (c *Cluster) Statuses(not ...*Node) (all []nodes.NodeStatus, err error) {
	err = c.ask("/admin/nodes", &all, not)
	return all, err
}

func (c *Cluster) ask(path string, into any, not []*Node) error {
	last := fmt.Errorf("no node runs")
	for _, n := range c.Running() {
		if contains(not, n) {
			continue
		}
		if last = getJSON("http://"+n.Admin+path, into); last == nil {
			return nil
		}
	}
	return last
}

func contains(all []*Node, n *Node) bool {
	for _, other := range all {
		if other == n {
			return true
		}
	}
	return false
}

func getJSON(address string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// AwaitServed waits until every stream of the tables is open at a leader that is none of the given nodes.
func (c *Cluster) AwaitServed(tables []string, not ...*Node) {
	c.t.Helper()
	gone := map[int64]bool{}
	for i, n := range c.Nodes {
		if contains(not, n) {
			gone[int64(i+1)] = true
		}
	}
	c.Await(fmt.Sprintf("every stream of %v is served by a node other than %v", tables, gone), func() bool {
		for _, table := range tables {
			streams, err := c.Streams(table, not...)
			if err != nil || len(streams) == 0 {
				return false
			}
			for _, s := range streams {
				if gone[s.Leader] || s.State != "open" || s.Epoch != s.LeaderEpoch {
					return false
				}
			}
		}
		return true
	})
}

// Check runs `varve inspect check` through a node.
func (c *Cluster) Check() {
	c.t.Helper()
	n := c.Running()[0]
	if out, err := n.Varve("inspect", "check", "--admin", n.Admin); err != nil {
		c.t.Errorf("the metadata is broken: %v\n%s", err, out)
	}
}
