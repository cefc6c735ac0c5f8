// Package ops is what every part of a process shares to be operated: logging, metrics, build information.
package ops

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// LogOptions choose how a process logs.
type LogOptions struct {
	Level  string `flag:"log-level" default:"info" usage:"least level that is logged: debug, info, warn or error"`
	Format string `flag:"log-format" default:"text" usage:"text or json"`
}

// Validate refuses levels and formats that do not exist.
func (o LogOptions) Validate() error {
	_, err := NewLogger(o, io.Discard)
	return err
}

// NewLogger makes the logger of a process.
func NewLogger(o LogOptions, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Level)); err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", o.Level)
	}
	handler := &slog.HandlerOptions{Level: level}
	switch strings.ToLower(o.Format) {
	case "text":
		return slog.New(slog.NewTextHandler(w, handler)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, handler)), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", o.Format)
}
