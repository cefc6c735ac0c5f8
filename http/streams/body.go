package streams

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
)

// readBody reads the body of a request up to the largest append, and keeps it for a request that is sent on.
func (s *Server) readBody(c echo.Context) ([]byte, error) {
	body, err := s.bodyOf(c)
	if err == nil {
		c.Set(bodyKey, body)
	}
	return body, err
}

func (s *Server) bodyOf(c echo.Context) ([]byte, error) {
	r := c.Request()
	if r.ContentLength > s.options.MaxBody {
		return nil, &http.MaxBytesError{Limit: s.options.MaxBody}
	}
	body := http.MaxBytesReader(c.Response(), r.Body, s.options.MaxBody)
	if r.ContentLength > 0 {
		b := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(body, b); err != nil {
			return nil, badRequest("incomplete_body", "the body ended before its %d bytes: %v", r.ContentLength, err)
		}
		return b, nil
	}
	return io.ReadAll(body)
}

// messages splits a body into the messages that are stored one by one: the elements of a JSON array of a JSON stream, else the whole body.
func messages(body []byte, isJSON bool) ([][]byte, error) {
	if !isJSON {
		return [][]byte{body}, nil
	}
	body = bytes.TrimSpace(body)
	if !json.Valid(body) {
		var whole json.RawMessage
		return nil, invalidJSON(json.Unmarshal(body, &whole))
	}
	if body[0] != '[' {
		return [][]byte{body}, nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(body, &elements); err != nil {
		return nil, invalidJSON(err)
	}
	all := make([][]byte, len(elements))
	for i := range elements {
		all[i] = elements[i]
	}
	return all, nil
}

// invalidJSON says what is wrong with a body, and where.
func invalidJSON(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return badRequest("invalid_json", "the body is not one JSON value (several go into an array): %v at byte %d", err, syntax.Offset)
	}
	return badRequest("invalid_json", "the body is not one JSON value (several go into an array): %v", err)
}

// batchOf makes one record batch of messages. writerSeq, unless empty, goes with the last of them, where the engine finds it again.
func batchOf(all [][]byte, writerSeq string, now time.Time) (batch.Batch, error) {
	records := make([]batch.Record, len(all))
	for i, value := range all {
		records[i] = batch.Record{Offset: int64(i), Timestamp: now.UnixMilli(), Value: value}
	}
	if writerSeq != "" {
		records[len(records)-1].Headers = []batch.RecordHeader{{Key: engine.WriterSeqHeader, Value: []byte(writerSeq)}}
	}
	b, _, err := batch.Next(batch.Build(records, batch.BuildOptions{}))
	return b, err
}
