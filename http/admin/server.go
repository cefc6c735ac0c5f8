// Package admin serves operators: health, readiness, metrics, profiles, and the state of the cluster as JSON.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/ops"
)

// Node is what the admin API tells of, and asks for.
type Node interface {
	Ready() (ready bool, reason string)
	Err() error
	Status(ctx context.Context) nodes.ClusterStatus
	NodeStatuses(ctx context.Context) []nodes.NodeStatus
	Tables() []layer.TableRow
	Table(ctx context.Context, name string) (layer.TableRow, error)
	BucketStatuses(ctx context.Context, table string) ([]nodes.BucketStatus, error)
	Transfers(ctx context.Context) ([]nodes.TransferStatus, error)

	Transfer(ctx context.Context, table string, bucket int, to int64) (layer.TransferRow, error)
	CancelTransfer(ctx context.Context, stream int64) error
	SetSlots(ctx context.Context, node int64, slots int) error
	ResetSlots(ctx context.Context, node int64) error
	DrainNode(ctx context.Context, node int64) (int, error)
	Rebalance(ctx context.Context) (int, error)
	FenceNode(ctx context.Context, id int64) error
}

// Inspector reads the metadata row by row; *layer.Store is one.
type Inspector interface {
	Log
	Inspect(ctx context.Context, options layer.InspectOptions, each func(layer.InspectRow) error) error
	Check(ctx context.Context, each func(layer.Problem)) error
}

// Server is the admin listener.
type Server struct {
	node      Node
	inspector Inspector
	build     ops.Build
	logger    *slog.Logger
	http      *http.Server
	// live ends answers that would go on for ever; it is cancelled first when the server stops.
	live    context.Context
	endLive context.CancelFunc
}

// New makes a listener that does not serve yet. parent ends answers that go on for ever.
func New(parent context.Context, node Node, inspector Inspector, metrics prometheus.Gatherer, build ops.Build, logger *slog.Logger) *Server {
	s := &Server{node: node, inspector: inspector, build: build, logger: logger}
	s.live, s.endLive = context.WithCancel(parent)
	s.http = &http.Server{
		Handler:           s.routes(metrics),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve answers requests until Shutdown, and returns nil then.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown waits for requests until ctx ends, then cuts them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endLive()
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	return err
}

// Handler serves without a listener.
func (s *Server) Handler() http.Handler { return s.http.Handler }

func (s *Server) routes(metrics prometheus.Gatherer) http.Handler {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.answerError
	e.GET("/health", s.health)
	e.GET("/ready", s.ready)
	e.GET("/metrics", echo.WrapHandler(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{})))
	e.GET("/admin/version", func(c echo.Context) error { return c.JSON(http.StatusOK, s.build) })
	e.GET("/admin/cluster", func(c echo.Context) error { return c.JSON(http.StatusOK, s.node.Status(c.Request().Context())) })
	e.GET("/admin/nodes", func(c echo.Context) error {
		return c.JSON(http.StatusOK, list(s.node.NodeStatuses(c.Request().Context())))
	})
	e.GET("/admin/streams", s.tables)
	e.GET("/admin/streams/*", s.table)
	e.GET("/admin/transfers", s.transfers)
	e.GET("/admin/inspect", s.inspect)
	e.GET("/admin/inspect/check", s.check)
	e.GET("/admin/inspect/follow", s.follow)
	e.POST("/admin/transfer", action(s.transfer))
	e.POST("/admin/transfer/cancel", action(s.cancelTransfer))
	e.POST("/admin/rebalance", action(s.rebalance))
	e.POST("/admin/drain", action(s.drain))
	e.POST("/admin/undrain", action(s.undrain))
	e.POST("/admin/slots", action(s.setSlots))
	e.POST("/admin/fence", action(s.fence))
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		e.GET(path, echo.WrapHandler(handler))
	}
	e.GET("/debug/pprof/*", echo.WrapHandler(http.HandlerFunc(pprof.Index)))
	return e
}

// list makes a nil list an empty one, which JSON shows as [].
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

// errorBody is the body of every answer that is not a success.
type errorBody struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

func (s *Server) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	status, code := http.StatusInternalServerError, "internal"
	var he *echo.HTTPError
	var elsewhere *nodes.NotController
	switch {
	case errors.As(err, &he):
		status, code = he.Code, strings.ReplaceAll(strings.ToLower(http.StatusText(he.Code)), " ", "_")
		err = fmt.Errorf("%v", he.Message)
		if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
			err = fmt.Errorf("there is nothing at %s %.200q; http/admin/README.md lists what is served", c.Request().Method, c.Request().URL.Path)
		}
	case errors.Is(err, nodes.ErrUnknownTable), errors.Is(err, nodes.ErrUnknownBucket):
		status, code = http.StatusNotFound, "not_found"
	case errors.Is(err, nodes.ErrInvalidRequest), errors.Is(err, nodes.ErrInvalidName), errors.Is(err, layer.ErrInvalid):
		status, code = http.StatusBadRequest, "invalid"
	case errors.Is(err, nodes.ErrUnavailable), errors.Is(err, kv.ErrUnavailable), errors.As(err, &elsewhere):
		status, code = http.StatusServiceUnavailable, "unavailable"
	}
	if status == http.StatusInternalServerError {
		s.logger.Error("admin request failed", "path", c.Request().URL.Path, "err", err)
	}
	c.JSON(status, errorBody{Error: code, Message: err.Error()})
}
