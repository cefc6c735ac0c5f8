package streams

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/engine"
)

// wanted is what a PUT asks a stream to be.
type wanted struct {
	name   string
	stored string // content type as it was sent
	media  string
	expiry expiry
	closed bool
	first  [][]byte // messages of the body
}

// create is PUT: it makes the stream, or finds that it exists as it is asked for (protocol section 5.1).
func (s *Server) create(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), s.options.AppendTimeout)
	defer cancel()
	w, err := s.wanted(c)
	if err != nil {
		return err
	}
	made, err := s.ensure(ctx, w)
	if err != nil {
		return err
	}
	t, err := s.target(ctx, c)
	if err != nil {
		s.tellCreated(ctx, c, w, made)
		return err
	}
	made = made || justCreated(c, t)
	if made {
		if err := fill(ctx, t, w); err != nil {
			return err
		}
	} else if err := matches(t, w); err != nil {
		return err
	}
	s.expiry.touch(t.table)
	return answerCreated(c, t, made)
}

// tellCreated marks the request as one whose stream was made here, and is to be filled by its leader, should it be another node.
func (s *Server) tellCreated(ctx context.Context, c echo.Context, w wanted, made bool) {
	if !made {
		return
	}
	if table, err := s.broker.Table(ctx, w.name); err == nil {
		c.Request().Header.Set(headerCreated, table.UUID.String())
	}
}

// justCreated tells whether the stream was made by the node that sent this request on, and nobody has used it yet.
func justCreated(c echo.Context, t target) bool {
	h := c.Request().Header
	_, ended := t.stream.Ended()
	return h.Get(headerForwarded) != "" && h.Get(headerCreated) == t.table.UUID.String() && t.stream.End() == 0 && !ended
}

func (s *Server) wanted(c echo.Context) (w wanted, err error) {
	r := c.Request()
	if w.name, err = streamName(r); err != nil {
		return w, err
	}
	for _, name := range []string{headerForkedFrom, headerForkOffset, headerForkSubOffset} {
		if r.Header.Get(name) != "" {
			return w, fail(http.StatusNotImplemented, "not_implemented", "%s: forks are not offered", name)
		}
	}
	if w.stored, w.media, err = contentType(r.Header); err != nil {
		return w, err
	}
	if w.stored == "" {
		w.stored, w.media = typeBinary, typeBinary
	}
	if w.expiry, err = expiryOf(r.Header); err != nil {
		return w, err
	}
	w.closed = closes(r.Header)
	body, err := s.readBody(c)
	if err != nil || len(body) == 0 {
		return w, err
	}
	s.metrics.bytesIn.Add(float64(len(body)))
	w.first, err = messages(body, w.media == typeJSON)
	return w, err
}

// ensure makes the table unless it exists.
func (s *Server) ensure(ctx context.Context, w wanted) (made bool, err error) {
	if table, err := s.broker.Table(ctx, w.name); err == nil {
		if at, ok := s.expiry.deadline(table); !ok || time.Now().Before(at) {
			return false, nil
		}
		if _, err := s.broker.Stream(ctx, w.name, 0); err != nil {
			return false, err
		}
		if err := s.expiry.delete(ctx, table); err != nil {
			return false, err
		}
	} else if !errors.Is(err, nodes.ErrUnknownTable) {
		return false, err
	}
	options := map[string]string{nodes.OptionHTTPContentType: w.stored, nodes.OptionRetentionMs: "-1"}
	if w.expiry.ttl != "" {
		options[nodes.OptionHTTPTTLSeconds] = w.expiry.ttl
	}
	if w.expiry.expiresAt != "" {
		options[nodes.OptionHTTPExpiresAt] = w.expiry.expiresAt
	}
	_, err = s.broker.CreateTable(ctx, nodes.CreateTable{Name: w.name, Buckets: 1, Options: options, Here: true})
	if errors.Is(err, nodes.ErrTableExists) {
		return false, nil
	}
	return err == nil, err
}

// fill writes the first content of a stream that was just made.
func fill(ctx context.Context, t target, w wanted) error {
	if len(w.first) > 0 {
		b, err := batchOf(w.first, "", time.Now())
		if err != nil {
			return err
		}
		if !w.closed {
			_, err = t.stream.Append(ctx, engine.Append{Batches: one(b)})
			return err
		}
		_, err = t.stream.EndStream(ctx, &engine.Append{Batches: one(b)})
		return err
	}
	if w.closed {
		_, err := t.stream.EndStream(ctx, nil)
		return err
	}
	return nil
}

// matches refuses a stream that exists otherwise than it is asked for.
func matches(t target, w wanted) error {
	stored, media := t.media()
	_, ended := t.stream.Ended()
	o := t.table.Options
	conflict := func(what, is, asked string) error {
		return fail(http.StatusConflict, "exists_otherwise", "stream %q exists with %s %q, asked for %q", t.name, what, is, asked)
	}
	switch {
	case media != w.media:
		return conflict("content type", stored, w.stored)
	case o[nodes.OptionHTTPTTLSeconds] != w.expiry.ttl:
		return conflict("TTL", o[nodes.OptionHTTPTTLSeconds], w.expiry.ttl)
	case o[nodes.OptionHTTPExpiresAt] != w.expiry.expiresAt:
		return conflict("expiry", o[nodes.OptionHTTPExpiresAt], w.expiry.expiresAt)
	case ended && !w.closed:
		return conflict("state", "closed", "open")
	case !ended && w.closed:
		return conflict("state", "open", "closed")
	}
	return nil
}

func answerCreated(c echo.Context, t target, made bool) error {
	h := c.Response().Header()
	stored, _ := t.media()
	h.Set("Content-Type", stored)
	h.Set(headerNextOffset, formatOffset(t.stream.End()))
	if _, ended := t.stream.Ended(); ended {
		h.Set(headerClosed, "true")
	}
	if !made {
		return c.NoContent(http.StatusOK)
	}
	h.Set("Location", location(c.Request()))
	return c.NoContent(http.StatusCreated)
}

// location is the URL of the stream as the client wrote it.
func location(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if forwarded := r.Header.Get("X-Forwarded-Proto"); forwarded == "https" || forwarded == "http" {
		scheme = forwarded
	}
	return scheme + "://" + r.Host + r.URL.EscapedPath()
}
