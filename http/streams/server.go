package streams

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// Prefix is the path under which streams are served.
const Prefix = "/v1/stream/"

// Server is the HTTP listener.
type Server struct {
	options Options
	broker  Broker
	logger  *slog.Logger
	metrics *Metrics
	expiry  *expirations

	http       *http.Server
	transport  *http.Transport // to leaders
	background sync.WaitGroup
	// live ends every read that waits; it is cancelled first when the server stops.
	live     context.Context
	endLive  context.CancelFunc
	stopping atomic.Bool
}

// New makes a listener that does not serve yet. parent ends what the server does in the background.
func New(parent context.Context, options Options, broker Broker, logger *slog.Logger, metrics *Metrics) (*Server, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	s := &Server{options: options, broker: broker, logger: logger, metrics: metrics, transport: newTransport(options)}
	s.live, s.endLive = context.WithCancel(parent)
	s.expiry = newExpirations(broker, logger)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler:           s.routes(),
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Serve answers requests until Shutdown, and returns nil then.
func (s *Server) Serve(l net.Listener) error {
	s.background.Go(func() { s.expiry.run(s.live) })
	if err := s.http.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// Shutdown ends reads that wait, refuses new requests and waits for the others until ctx ends; then it cuts what is left.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopping.Store(true)
	s.endLive()
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	s.transport.CloseIdleConnections()
	s.background.Wait()
	return err
}

// Handler serves without a listener, for tests and for embedding.
func (s *Server) Handler() http.Handler { return s.http.Handler }

func (s *Server) routes() http.Handler {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.answerError
	e.Use(s.observe, s.secure)
	if len(s.options.CORSOrigins) > 0 {
		e.Use(middleware.CORSWithConfig(s.cors()))
	}
	e.Use(s.refuseWhenStopping) // after CORS: pages are to see that it is 503
	for method, handle := range map[string]echo.HandlerFunc{
		http.MethodPut: s.create, http.MethodPost: s.append, http.MethodGet: s.read, http.MethodHead: s.head, http.MethodDelete: s.delete,
	} {
		e.Add(method, Prefix+"*", s.route(handle))
	}
	return e
}

func (s *Server) cors() middleware.CORSConfig {
	return middleware.CORSConfig{
		AllowOrigins: s.options.CORSOrigins,
		AllowMethods: []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete},
		AllowHeaders: []string{"Content-Type", "Authorization", "If-None-Match", headerLastEventID, headerSeq, headerTTL, headerExpiresAt, headerClosed,
			headerForkedFrom, headerForkOffset, headerForkSubOffset, headerProducerID, headerProducerEpoch, headerProducerSeq},
		ExposeHeaders: []string{"ETag", "Location", "Content-Type", "Retry-After", headerNextOffset, headerUpToDate, headerCursor, headerClosed, headerTTL,
			headerExpiresAt, headerSSEEncoding, headerProducerEpoch, headerProducerSeq, headerExpectedSeq, headerReceivedSeq},
		MaxAge: 86400,
	}
}

// secure sets what browsers need to be told of every answer (protocol section 12.7).
func (s *Server) secure(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		return next(c)
	}
}

// errorBody is the body of every answer that is not a success.
type errorBody struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

// answerError writes a failure in the protocol's words.
func (s *Server) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	var f *failure
	if he, ok := err.(*echo.HTTPError); ok {
		f = routeFailure(he, c.Request())
	} else {
		f = failureOf(err)
	}
	h := c.Response().Header()
	h.Set("Cache-Control", "no-store")
	for name, value := range f.headers {
		h.Set(name, value)
	}
	if f.status == http.StatusTemporaryRedirect {
		h.Set("Location", redirectTo(err, c.Request()))
	}
	if f.status == http.StatusInternalServerError {
		s.logger.Error("request failed", "method", c.Request().Method, "path", c.Request().URL.Path, "err", err)
	}
	if c.Request().Method == http.MethodHead {
		c.NoContent(f.status)
		return
	}
	c.JSON(f.status, errorBody{Error: f.code, Message: f.message})
}

// observe counts and times requests.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		if err := next(c); err != nil {
			c.Error(err)
		}
		s.metrics.request(methodLabel(c.Request().Method), c.QueryParam("live"), c.Response().Status, time.Since(start))
		return nil
	}
}

// refuseWhenStopping answers what comes while the server stops.
func (s *Server) refuseWhenStopping(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !s.stopping.Load() {
			return next(c)
		}
		c.Response().Header().Set("Connection", "close")
		return fail(http.StatusServiceUnavailable, "unavailable", "the node is stopping").with("Retry-After", retryAfter)
	}
}

// methodLabel keeps the number of label values bounded, whatever clients send.
func methodLabel(method string) string {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodOptions}, method) {
		return method
	}
	return "other"
}
