package process

import (
	"errors"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// Proxy passes connections on to a server, byte by byte, until it is told otherwise.
type Proxy struct {
	listener net.Listener
	network  string
	upstream string
	closed   chan struct{}
	wg       sync.WaitGroup

	mu      sync.Mutex // guards what follows
	pairs   map[*pair]struct{}
	cut     bool
	latency time.Duration
	delay   time.Duration
	flows   chan struct{} // closed while bytes flow
	frozen  bool
}

// pair is a connection of a client and the one to the server that goes with it.
type pair struct{ client, server net.Conn }

func (p *pair) close() {
	p.client.Close()
	p.server.Close()
}

// NewProxy listens on an address of a network (tcp, unix) and passes on to upstream on the same network, until the test ends.
func NewProxy(t testing.TB, network, address, upstream string) *Proxy {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, network: network, upstream: upstream, closed: make(chan struct{}), pairs: map[*pair]struct{}{}, flows: make(chan struct{})}
	close(p.flows)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		close(p.closed)
		l.Close()
		p.drop()
		p.wg.Wait()
	})
	return p
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut closes every connection, and each new one at once.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.drop()
}

// Freeze keeps connections and passes nothing on: what was sent arrives after Heal.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.frozen {
		p.frozen, p.flows = true, make(chan struct{})
	}
}

// Latency is that of a healthy connection, in each direction; Heal leaves it.
func (p *Proxy) Latency(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = by
}

// Slow holds up bytes in each direction.
func (p *Proxy) Slow(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = by
}

// Heal ends what Cut, Freeze and Slow do.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay = false, 0
	if p.frozen {
		p.frozen = false
		close(p.flows)
	}
}

func (p *Proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial(p.network, p.upstream)
	if err != nil {
		return
	}
	both := &pair{client, server}
	defer both.close()
	p.mu.Lock()
	select {
	case <-p.closed:
		p.cut = true
	default:
	}
	if p.cut {
		p.mu.Unlock()
		return
	}
	p.pairs[both] = struct{}{}
	p.mu.Unlock()
	var copies sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		copies.Go(func() {
			defer both.close()
			p.copy(way[1], way[0])
		})
	}
	copies.Wait()
	p.mu.Lock()
	delete(p.pairs, both)
	p.mu.Unlock()
}

func (p *Proxy) copy(to io.Writer, from io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.hold() {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// hold waits while bytes must not flow; false when the proxy was closed.
func (p *Proxy) hold() bool {
	p.mu.Lock()
	flows, delay := p.flows, p.latency+p.delay
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.closed:
			return false
		}
	}
	select {
	case <-flows:
		return true
	case <-p.closed:
		return false
	}
}

// Line is what lies between a node and its metadata: a proxy, or a line to the fake FoundationDB, which does not answer when it is cut.
type Line interface {
	Cut()
	Freeze()
	Latency(by time.Duration)
	Slow(by time.Duration)
	Heal()
}

// Proxies are what lies between a node and its stores.
type Proxies struct {
	Metadata Line // nil on a real FoundationDB
	Objects  *Proxy
}

// NewProxiedCluster is NewCluster with proxies between each node and its stores; Options.Storage is an s3:// URL with an endpoint.
func NewProxiedCluster(t testing.TB, count int, options Options) (*Cluster, []Proxies) {
	t.Helper()
	c := &Cluster{t: t}
	shared := metadata(t, options)
	if shared == nil {
		c.metadata = serveMetadata(t)
	}
	storage, endpoint := endpointOf(t, options.Storage)
	var proxies []Proxies
	for id := 1; id <= count; id++ {
		p := Proxies{Objects: NewProxy(t, "tcp", "127.0.0.1:0", endpoint)}
		args := append([]string{"--node-id", strconv.Itoa(id)}, shared...)
		own := options
		if c.metadata != nil {
			proxy := NewProxy(t, "unix", filepath.Join(filepath.Dir(c.metadata.path), "node"+strconv.Itoa(id)), c.metadata.path)
			p.Metadata = proxy
			args = append(args, "--metadata-socket", proxy.Address())
		} else {
			p.Metadata = c.line(&own)
		}
		own.id, own.Storage, own.Args = int64(id), storage("http://"+p.Objects.Address()), append(args, options.Args...)
		c.Nodes = append(c.Nodes, newNode(t, own))
		proxies = append(proxies, p)
	}
	return c, proxies
}

// endpointOf gives the host and port of a store's endpoint, and what makes the same store's URL with another endpoint.
func endpointOf(t testing.TB, storage string) (with func(endpoint string) string, hostPort string) {
	t.Helper()
	u, err := url.Parse(storage)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(u.Query().Get("endpoint"))
	if err != nil || endpoint.Host == "" {
		t.Fatalf("storage %s: no endpoint to put a proxy before: %v", storage, err)
	}
	return func(other string) string {
		changed, query := *u, u.Query()
		query.Set("endpoint", other)
		changed.RawQuery = query.Encode()
		return changed.String()
	}, endpoint.Host
}

// Engine is the engine that holds the cluster's metadata, for tests that act on it beside the nodes; nil on FoundationDB.
func (c *Cluster) Engine() kv.Database {
	if c.metadata == nil {
		return nil
	}
	return c.metadata.engine
}
