package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/layer"
)

// InspectedRow is one row of metadata as a line of JSON.
type InspectedRow struct {
	Keyspace string          `json:"keyspace"`
	Key      string          `json:"key"`
	Value    json.RawMessage `json:"value,omitempty"`
	Text     string          `json:"text,omitempty"`  // a value that is not JSON
	Error    string          `json:"error,omitempty"` // why the row does not decode
}

// NewInspectedRow makes the line of a row.
func NewInspectedRow(r layer.InspectRow) InspectedRow {
	line := InspectedRow{Keyspace: r.Keyspace, Key: fmt.Sprint(r.Key)}
	if json.Valid([]byte(r.Value)) {
		line.Value = json.RawMessage(r.Value)
	} else {
		line.Text = r.Value
	}
	if r.Err != nil {
		line.Error = r.Err.Error()
	}
	return line
}

// inspect streams rows of metadata as lines of JSON: ?keyspace=, ?stream=, ?node= and ?limit= choose among them.
func (s *Server) inspect(c echo.Context) error {
	options := layer.InspectOptions{Keyspace: c.QueryParam("keyspace")}
	var limit int64
	for name, field := range map[string]*int64{"stream": &options.Stream, "node": &options.Node, "limit": &limit} {
		text := c.QueryParam(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return echo.NewHTTPError(http.StatusBadRequest, name+": want a whole number")
		}
		*field = n
	}
	options.Limit = int(limit)
	encoder := startLines(c)
	err := s.inspector.Inspect(c.Request().Context(), options, func(r layer.InspectRow) error {
		return encoder.Encode(NewInspectedRow(r))
	})
	return endLines(c, encoder, err)
}

// Problem is one broken invariant as a line of JSON.
type Problem struct {
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	Detail string `json:"detail"`
}

// check streams what is wrong with the metadata as lines of JSON; none when nothing is.
func (s *Server) check(c echo.Context) error {
	encoder := startLines(c)
	err := s.inspector.Check(c.Request().Context(), func(p layer.Problem) {
		_ = encoder.Encode(Problem(p)) // a client that left is seen by the context
	})
	return endLines(c, encoder, err)
}

func startLines(c echo.Context) *json.Encoder {
	c.Response().Header().Set("Content-Type", "application/x-ndjson")
	return json.NewEncoder(c.Response())
}

// endLines reports a failure after lines were sent as a last line with an error in it, since the status is gone by then.
func endLines(c echo.Context, encoder *json.Encoder, err error) error {
	if err == nil && !c.Response().Committed {
		return c.NoContent(http.StatusOK)
	}
	if err != nil && c.Response().Committed {
		return encoder.Encode(errorBody{Error: "incomplete", Message: err.Error()})
	}
	return err
}
