package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// followInterval is how often the metadata log is looked at for new records.
const followInterval = 300 * time.Millisecond

// followPage is how many records of the log are read at once.
const followPage = 1000

// Log reads the metadata log; *layer.Store is one.
type Log interface {
	LogHead(ctx context.Context) (tuple.Versionstamp, error)
	ReadLog(ctx context.Context, after tuple.Versionstamp, limit int) ([]layer.LogRecord, error)
}

// LogLine is one record of the metadata log as a line of JSON.
type LogLine struct {
	Versionstamp string `json:"versionstamp"`
	layer.LogRecord
}

// FollowLog calls each with the records that are appended to the log from now on, until ctx ends, which is no error.
func FollowLog(ctx context.Context, log Log, each func(LogLine) error) error {
	after, err := log.LogHead(ctx)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		records, err := log.ReadLog(ctx, after, followPage)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for _, record := range records {
			after = record.Versionstamp
			line := LogLine{Versionstamp: after.String(), LogRecord: record}
			if err := each(line); err != nil {
				return err
			}
		}
		if len(records) == followPage {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// follow streams the records of the metadata log as they are appended, as lines of JSON, until the client leaves or the server stops.
func (s *Server) follow(c echo.Context) error {
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.live, cancel)()
	c.Response().Header().Set("Content-Type", "application/x-ndjson")
	c.Response().WriteHeader(http.StatusOK)
	c.Response().Flush()
	encoder := json.NewEncoder(c.Response())
	err := FollowLog(ctx, s.inspector, func(line LogLine) error {
		defer c.Response().Flush()
		return encoder.Encode(line)
	})
	return endLines(c, encoder, err)
}
