package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/nodes"
)

// maxAction bounds the body of an action, bytes.
const maxAction = 64 << 10

// StreamAction names a bucket, and for a transfer the node that it should go to.
type StreamAction struct {
	Stream string `json:"stream"` // name of the stream or topic
	Bucket int    `json:"bucket"`
	To     int64  `json:"to,omitempty"`
}

// NodeAction names a node, and for /admin/slots its weight.
type NodeAction struct {
	Node  int64 `json:"node"`
	Slots *int  `json:"slots,omitempty"`
}

// Moves is the answer of an action that begins transfers.
type Moves struct {
	Moves int `json:"moves"`
}

// action reads the JSON body of a request into its argument. Only JSON is taken, so that no web page can send one unasked.
func action[T any](do func(echo.Context, T) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		media, _, err := mime.ParseMediaType(c.Request().Header.Get("Content-Type"))
		if err != nil || media != "application/json" {
			return echo.NewHTTPError(http.StatusUnsupportedMediaType, "Content-Type: want application/json")
		}
		var asked T
		decoder := json.NewDecoder(http.MaxBytesReader(c.Response(), c.Request().Body, maxAction))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&asked); err != nil {
			return echo.NewHTTPError(http.StatusBadRequest, "body: "+err.Error())
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return echo.NewHTTPError(http.StatusBadRequest, "body: more than one JSON value")
		}
		return do(c, asked)
	}
}

// transfer begins a planned move; it is accepted, not yet done.
func (s *Server) transfer(c echo.Context, a StreamAction) error {
	row, err := s.node.Transfer(c.Request().Context(), a.Stream, a.Bucket, a.To)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, nodes.TransferStatus{
		Stream: row.Stream, Table: a.Stream, Bucket: a.Bucket, From: row.From, To: row.To, LeaderEpoch: row.LeaderEpoch, At: row.At,
	})
}

func (s *Server) cancelTransfer(c echo.Context, a StreamAction) error {
	ctx := c.Request().Context()
	streams, err := s.node.BucketStatuses(ctx, a.Stream)
	if err != nil {
		return err
	}
	for _, status := range streams {
		if status.Bucket == a.Bucket {
			if err := s.node.CancelTransfer(ctx, status.Stream); err != nil {
				return fmt.Errorf("%s/%d: %w", a.Stream, a.Bucket, err)
			}
			return c.NoContent(http.StatusNoContent)
		}
	}
	return fmt.Errorf("%w: %d of %q, which has %d", nodes.ErrUnknownBucket, a.Bucket, a.Stream, len(streams))
}

func (s *Server) rebalance(c echo.Context, _ struct{}) error {
	n, err := s.node.Rebalance(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, Moves{n})
}

func (s *Server) drain(c echo.Context, a NodeAction) error {
	n, err := s.node.DrainNode(c.Request().Context(), a.Node)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, Moves{n})
}

// undrain gives a node the slots that it registered with, after drain or slots.
func (s *Server) undrain(c echo.Context, a NodeAction) error {
	if err := s.node.ResetSlots(c.Request().Context(), a.Node); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) setSlots(c echo.Context, a NodeAction) error {
	if a.Slots == nil {
		return echo.NewHTTPError(http.StatusBadRequest, "slots is missing: want a whole number from 0")
	}
	if err := s.node.SetSlots(c.Request().Context(), a.Node, *a.Slots); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// fence is done by the lease holder: another node forwards it there, once.
func (s *Server) fence(c echo.Context, a NodeAction) error {
	err := s.node.FenceNode(c.Request().Context(), a.Node)
	var elsewhere *nodes.NotController
	switch {
	case err == nil:
		return c.NoContent(http.StatusNoContent)
	case errors.As(err, &elsewhere) && elsewhere.Holder.Admin != "" && c.Request().Header.Get(headerForwarded) == "":
		return s.forward(c, elsewhere.Holder.Admin, a)
	}
	return err
}

// headerForwarded marks a request that another node sent on, so that two nodes that do not agree on the holder do not send it round.
const headerForwarded = "Varve-Forwarded"

// forward asks the node at an admin address instead, and answers what it answers.
func (s *Server) forward(c echo.Context, address string, asked any) error {
	body, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	r := c.Request()
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: address})
			p.Out.Header.Set(headerForwarded, "1")
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			s.answerError(echo.NewHTTPError(http.StatusServiceUnavailable, "the lease holder at "+address+": "+err.Error()), c)
		},
		ErrorLog: s.http.ErrorLog,
	}
	proxy.ServeHTTP(c.Response(), r)
	return nil
}
