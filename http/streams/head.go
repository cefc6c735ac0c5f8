package streams

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/nodes"
)

// head is HEAD: the stream's metadata (protocol section 5.5). It does not begin the TTL anew.
func (s *Server) head(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), s.options.AppendTimeout)
	defer cancel()
	t, err := s.target(ctx, c)
	if err != nil {
		return err
	}
	h := c.Response().Header()
	stored, _ := t.media()
	h.Set("Content-Type", stored)
	h.Set("Cache-Control", "no-store")
	end, ended := t.stream.Ended()
	if !ended {
		end = t.stream.End()
	}
	h.Set(headerNextOffset, formatOffset(end))
	if ended {
		h.Set(headerClosed, "true")
	}
	if ttl := t.table.Options[nodes.OptionHTTPTTLSeconds]; ttl != "" {
		h.Set(headerTTL, ttl)
	}
	if at := t.table.Options[nodes.OptionHTTPExpiresAt]; at != "" {
		h.Set(headerExpiresAt, at)
	}
	return c.NoContent(http.StatusOK)
}

// delete is DELETE (protocol section 5.4).
func (s *Server) delete(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), s.options.AppendTimeout)
	defer cancel()
	name, err := streamName(c.Request())
	if err != nil {
		return err
	}
	if err := s.broker.DeleteTable(ctx, name); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
