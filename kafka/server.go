package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/varvedb/varve/nodes"
)

// Server is a Kafka listener. Serve and Shutdown may be called from any goroutine.
type Server struct {
	options                Options
	broker                 Broker
	logger                 *slog.Logger
	metrics                *Metrics
	apis                   map[int16]api
	defaultMaxMessageBytes int // max.message.bytes of a table that does not set it

	decompressions chan struct{} // holds one item for each large batch that is being decompressed

	stop chan struct{}  // closed by Shutdown: no new requests, and those that wait for records end
	work sync.WaitGroup // listeners and connections

	mu          sync.Mutex // guards what follows
	stopped     bool
	listeners   map[net.Listener]struct{}
	connections map[*connection]struct{}
}

// NewServer makes a listener that asks broker. metrics comes from NewMetrics.
func NewServer(options Options, broker Broker, logger *slog.Logger, metrics *Metrics) (*Server, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		options: options,
		broker:  broker,
		logger:  logger,
		metrics: metrics,
		stop:    make(chan struct{}),

		decompressions: make(chan struct{}, largeDecompressions),

		listeners:   make(map[net.Listener]struct{}),
		connections: make(map[*connection]struct{}),
	}
	defaultMax := nodes.OptionValue(nil, nodes.OptionMaxMessageBytes)
	n, err := strconv.Atoi(defaultMax)
	if err != nil {
		return nil, fmt.Errorf("default of %s is %q: %w", nodes.OptionMaxMessageBytes, defaultMax, err)
	}
	s.defaultMaxMessageBytes = n
	s.apis = s.servedAPIs()
	return s, nil
}

// ErrServerClosed is what Serve returns after Shutdown.
var ErrServerClosed = errors.New("kafka listener is closed")

// Serve accepts connections on l until Shutdown is called (ErrServerClosed), ctx ends or l fails. It closes l. ctx is that of all
// requests: when it ends, connections end without an answer. TLS is a matter of l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if !s.add(l) {
		_ = l.Close()
		return ErrServerClosed
	}
	defer s.work.Done()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	defer s.remove(l)
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 5*time.Millisecond, time.Second
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause.Reset()
			s.accept(ctx, conn)
		case s.stopping():
			return ErrServerClosed
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept Kafka connections on %v: %w", l.Addr(), err)
		default: // such as too many open files: better to wait than to die
			s.logger.Error("cannot accept Kafka connections", "address", l.Addr().String(), "error", err)
			select {
			case <-time.After(pause.NextBackOff()):
			case <-s.stop:
			case <-ctx.Done():
			}
		}
	}
}

func (s *Server) add(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.work.Add(1)
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) remove(l net.Listener) {
	_ = l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// accept starts to serve a connection, or closes it when there are too many.
func (s *Server) accept(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	c := &connection{server: s, conn: conn, peer: conn.RemoteAddr().String(), ctx: ctx, cancel: cancel, queue: make(chan *call, s.options.InflightRequests)}
	c.inflight.maxRequests, c.inflight.maxBytes = s.options.InflightRequests, s.options.InflightBytes

	s.mu.Lock()
	full := len(s.connections) >= s.options.MaxConnections
	if full || s.stopped {
		s.mu.Unlock()
		cancel()
		_ = conn.Close()
		if full {
			s.metrics.Refused.Inc()
			s.logger.Warn("Kafka connection refused: too many", "peer", c.peer, "most", s.options.MaxConnections)
		}
		return
	}
	s.connections[c] = struct{}{}
	s.work.Add(1)
	s.mu.Unlock()

	s.metrics.Connections.Inc()
	go pprof.Do(ctx, pprof.Labels("varve", "kafka reader"), func(context.Context) {
		defer s.work.Done()
		unhook := context.AfterFunc(ctx, func() { _ = conn.Close() })
		c.serve()
		unhook()
		s.metrics.Connections.Dec()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.connections, c)
	})
}

// Shutdown stops accepting connections and requests, ends Fetch requests that wait for records with NOT_LEADER_OR_FOLLOWER, and waits until
// all requests are answered. When ctx ends before that, the connections are closed as they are and the error is that of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
	}
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.connections {
		c.interrupt()
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() { // ends with the last connection, which the code below makes sure of
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.connections {
		c.cancel()
	}
	s.mu.Unlock()
	<-done
	return fmt.Errorf("stop Kafka listener: %w", ctx.Err())
}

// stopping tells whether Shutdown was called.
func (s *Server) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// maxFrame is the largest frame of an API key.
func (s *Server) maxFrame(key int16) int {
	if key == keyProduce {
		return s.options.MaxRequestBytes
	}
	return min(s.options.MaxOtherRequestBytes, s.options.MaxRequestBytes)
}

// logEnd logs one line for a connection that ended in another way than usual.
func (s *Server) logEnd(peer string, err error) {
	if errors.Is(err, errMalformed) || errors.Is(err, errUnsupported) {
		s.metrics.Malformed.Inc()
		s.logger.Warn("Kafka connection closed", "peer", peer, "error", err)
		return
	}
	if !expected(err) {
		s.logger.Debug("Kafka connection failed", "peer", peer, "error", err)
	}
}
