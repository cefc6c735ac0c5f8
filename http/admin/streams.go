package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
)

// Page sizes of the list of tables.
const (
	defaultPage = 1000
	maxPage     = 10_000
)

// tableBody is a table as the admin API tells it.
type tableBody struct {
	layer.TableRow
	Streams []nodes.BucketStatus `json:"streams,omitempty"`
}

// tables lists tables by name: ?prefix=, ?after= (the last name of the page before) and ?limit=.
func (s *Server) tables(c echo.Context) error {
	limit := defaultPage
	if text := c.QueryParam("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return echo.NewHTTPError(http.StatusBadRequest, "limit: want a whole number from 1 to "+strconv.Itoa(maxPage))
		}
		limit = n
	}
	prefix, after := c.QueryParam("prefix"), c.QueryParam("after")
	all := slices.DeleteFunc(slices.Clone(s.node.Tables()), func(t layer.TableRow) bool {
		return !strings.HasPrefix(t.Name, prefix) || t.Name <= after && after != ""
	})
	slices.SortFunc(all, func(a, b layer.TableRow) int { return strings.Compare(a.Name, b.Name) })
	page := make([]tableBody, 0, min(limit, len(all)))
	for _, t := range all[:min(limit, len(all))] {
		page = append(page, tableBody{TableRow: t})
	}
	return c.JSON(http.StatusOK, page)
}

// table tells of one table and each of its streams.
func (s *Server) table(c echo.Context) error {
	name, err := url.PathUnescape(c.Param("*"))
	if err != nil {
		return echo.NewHTTPError(http.StatusBadRequest, "the name is not percent-encoded as URLs are")
	}
	ctx := c.Request().Context()
	row, err := s.node.Table(ctx, name)
	if err != nil {
		return err
	}
	streams, err := s.node.BucketStatuses(ctx, name)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, tableBody{TableRow: row, Streams: list(streams)})
}

func (s *Server) transfers(c echo.Context) error {
	all, err := s.node.Transfers(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, list(all))
}
