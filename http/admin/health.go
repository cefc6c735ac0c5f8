package admin

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/nodes"
)

type healthBody struct {
	Status string `json:"status"`
}

// health says that the process lives and answers. Whether it should get requests is what ready says.
func (s *Server) health(c echo.Context) error {
	return c.JSON(http.StatusOK, healthBody{Status: "ok"})
}

type readyBody struct {
	Ready  bool   `json:"ready"`
	Fenced bool   `json:"fenced"`
	Reason string `json:"reason,omitempty"`
}

// ready says whether requests should be sent here: 200, or 503 with the reason.
func (s *Server) ready(c echo.Context) error {
	ready, reason := s.node.Ready()
	body := readyBody{Ready: ready, Reason: reason, Fenced: errors.Is(s.node.Err(), nodes.ErrFenced)}
	if !ready {
		return c.JSON(http.StatusServiceUnavailable, body)
	}
	return c.JSON(http.StatusOK, body)
}
