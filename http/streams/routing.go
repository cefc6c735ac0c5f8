package streams

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/nodes"
)

// Routing is what a node does with a request for a stream that another node leads.
type Routing string

// Kinds of routing.
const (
	RoutingLocal    Routing = "local"    // 503: something in front of the nodes knows where to go
	RoutingRedirect Routing = "redirect" // 307 to the leader's advertised address
	RoutingProxy    Routing = "proxy"    // the node asks the leader for the client
)

// headerForwarded marks a request that another node sent on, so that two nodes that do not agree on the leader do not send it round.
const headerForwarded = "Varve-Forwarded"

// headerCreated carries the UUID of a table that the node which sent the request on has just made for it: the leader fills it.
const headerCreated = "Varve-Created"

// bodyKey is where readBody keeps a body that was read, for a request that is sent on after that.
const bodyKey = "body"

// newTransport is how requests reach leaders: it gives up when an answer takes longer than any that is waited for.
func newTransport(o Options) *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       time.Minute,
		ResponseHeaderTimeout: max(o.LongPollTimeout, o.AppendTimeout) + 10*time.Second,
		DisableCompression:    true, // what the leader answers goes on as it is
	}
}

// route deals with requests for streams that are led elsewhere.
func (s *Server) route(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if h := c.Request().Header; h.Get(headerForwarded) == "" {
			h.Del(headerCreated) // only another node's word is taken for it
		}
		err := next(c)
		var elsewhere *nodes.NotLeader
		if err == nil || !errors.As(err, &elsewhere) || elsewhere.Leader.HTTP == "" {
			return err
		}
		fresh := c.Request().Header.Get(headerCreated)
		switch {
		case c.Request().Header.Get(headerForwarded) != "", s.options.Routing == RoutingLocal && fresh == "":
			return fail(http.StatusServiceUnavailable, "not_leader", "%v", elsewhere).with("Retry-After", retryAfter)
		case s.options.Routing == RoutingProxy, fresh != "":
			return s.forward(c, elsewhere.Leader.HTTP)
		}
		return err
	}
}

// forward lets the leader answer.
func (s *Server) forward(c echo.Context, leader string) error {
	r := c.Request()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	unlink := context.AfterFunc(s.live, cancel) // a node that stops ends what waits, here as at the leader
	defer unlink()
	r = r.WithContext(ctx)
	if body, ok := c.Get(bodyKey).([]byte); ok {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	var failed error
	proxy := httputil.ReverseProxy{
		Transport: s.transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: leader})
			p.Out.URL.Path, p.Out.URL.RawPath, p.Out.URL.RawQuery = p.In.URL.Path, p.In.URL.RawPath, p.In.URL.RawQuery
			p.Out.Host = p.In.Host
			p.SetXForwarded()
			p.Out.Header.Set(headerForwarded, "1")
		},
		ModifyResponse: func(answer *http.Response) error {
			for name := range answer.Header { // said once, by the leader
				c.Response().Header().Del(name)
			}
			return nil
		},
		FlushInterval: -1,
		ErrorHandler:  func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:      slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(c.Response(), r)
	if failed != nil {
		return fail(http.StatusServiceUnavailable, "unavailable", "the leader at %s: %v", leader, failed).with("Retry-After", retryAfter)
	}
	return nil
}
