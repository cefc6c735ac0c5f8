package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
)

// Values of the query parameter live.
const (
	liveLongPoll = "long-poll"
	liveSSE      = "sse"
)

// maxDecompressed bounds what one batch of a stream may decompress to, bytes.
const maxDecompressed = 64 << 20

// request is a read, parsed.
type request struct {
	at     position
	live   string
	cursor string
	// resumed: a browser's EventSource connects again, and at is behind the last event that it had.
	resumed bool
}

// read is GET: catch-up, long poll and server-sent events (protocol sections 5.6 to 5.8).
func (s *Server) read(c echo.Context) error {
	r, err := parseRead(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	t, err := s.target(ctx, c)
	if err != nil {
		return err
	}
	s.expiry.touch(t.table)
	offset := r.at.offset
	switch {
	case r.at.now:
		offset = t.stream.End()
	case r.at.beginning:
		offset = t.stream.Start()
	}
	switch r.live {
	case liveLongPoll:
		return s.longPoll(c, t, r, offset)
	case liveSSE:
		return s.sse(c, t, r, offset)
	}
	return s.catchUp(c, t, r, offset)
}

func parseRead(c echo.Context) (request, error) {
	query := c.QueryParams()
	r := request{at: position{beginning: true}, live: query.Get("live"), cursor: query.Get("cursor")}
	tokens, given := query["offset"]
	if r.live != "" && r.live != liveLongPoll && r.live != liveSSE {
		return r, badRequest("invalid_live", "live %.64q: want %s or %s", r.live, liveLongPoll, liveSSE)
	}
	if !given {
		if r.live != "" {
			return r, badRequest("offset_required", "live=%s needs an offset", r.live)
		}
		return r, nil
	}
	if len(tokens) > 1 {
		return r, badRequest("malformed_offset", "offset is given %d times", len(tokens))
	}
	var err error
	if r.at, err = parseOffset(tokens[0]); err != nil || r.live != liveSSE {
		return r, err
	}
	if at, err := parseOffset(c.Request().Header.Get(headerLastEventID)); err == nil {
		r.at, r.resumed = at, true
	}
	return r, nil
}

// chunk is what a read answers with.
type chunk struct {
	values [][]byte // of the records, in order
	next   int64    // the offset after them
	// upToDate: there was nothing beyond next when the chunk was read. closed: and there never will be.
	upToDate, closed bool
}

// chunk reads from an offset. At the end of the stream it is empty.
func (s *Server) chunk(ctx context.Context, t target, offset int64) (chunk, error) {
	// Whether the stream has ended is looked at first: an end that is seen is the end of what is read after it.
	end, ended := t.stream.Ended()
	result, err := t.stream.Read(ctx, engine.Read{Offset: offset, MaxBytes: int(s.options.MaxChunk), MinOneBatch: true})
	if err != nil {
		return chunk{}, err
	}
	out := chunk{next: offset}
	for _, raw := range result.Batches {
		if err := out.add(raw, offset); err != nil {
			return chunk{}, fmt.Errorf("stream %q after offset %d: %w", t.name, out.next, err)
		}
	}
	out.upToDate = out.next >= result.End
	out.closed = ended && out.next >= end
	return out, nil
}

// add takes the records of a batch from an offset on.
func (k *chunk) add(raw []byte, from int64) error {
	b, _, err := batch.Next(raw)
	if err != nil {
		return err
	}
	if !b.IsControl() {
		records, err := b.Records(maxDecompressed)
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.Offset >= from {
				k.values = append(k.values, r.Value)
			}
		}
	}
	k.next = b.LastOffset() + 1
	return nil
}

// body is the chunk in the form of the stream's content type: bytes one after the other, or an array of JSON values.
func (k *chunk) body(isJSON bool) []byte {
	if !isJSON {
		return slices.Concat(k.values...)
	}
	size := 2
	for _, v := range k.values {
		size += len(v) + 5
	}
	out := append(make([]byte, 0, size), '[')
	for i, v := range k.values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, jsonValue(v)...)
	}
	return append(out, ']')
}

// jsonValue is the value as JSON. Appends over HTTP are checked, records of Kafka producers are not: a null is null, what is not JSON is
// shown as a string, so that one bad record does not spoil the array.
func jsonValue(v []byte) []byte {
	switch {
	case v == nil:
		return []byte("null")
	case json.Valid(v):
		return v
	}
	quoted, _ := json.Marshal(string(v)) // a string always marshals
	return quoted
}

// catchUp answers at once with what there is.
func (s *Server) catchUp(c echo.Context, t target, r request, offset int64) error {
	var k chunk
	var err error
	if r.at.now {
		k = chunk{next: offset, upToDate: true}
		_, k.closed = t.stream.Ended()
	} else if k, err = s.chunk(c.Request().Context(), t, offset); err != nil {
		return err
	}
	h := c.Response().Header()
	if r.at.now {
		h.Set("Cache-Control", "no-store")
	} else {
		etag := s.etag(t, offset, k)
		h.Set("ETag", etag)
		h.Set("Cache-Control", cacheControl(t, k))
		if notModified(c.Request(), etag) {
			k.setHeaders(h)
			return c.NoContent(http.StatusNotModified)
		}
	}
	return s.answerChunk(c, t, k)
}

// setHeaders says where the chunk ends.
func (k *chunk) setHeaders(h http.Header) {
	h.Set(headerNextOffset, formatOffset(k.next))
	if k.upToDate {
		h.Set(headerUpToDate, "true")
	}
	if k.closed {
		h.Set(headerClosed, "true")
	}
}

func (s *Server) answerChunk(c echo.Context, t target, k chunk) error {
	k.setHeaders(c.Response().Header())
	stored, _ := t.media()
	body := k.body(t.json())
	s.metrics.bytesOut.Add(float64(len(body)))
	return c.Blob(http.StatusOK, stored, body)
}

// etag names what was answered: stream, from where to where, and whether that is the end for ever.
func (s *Server) etag(t target, from int64, k chunk) string {
	closed := ""
	if k.closed {
		closed = ":c"
	}
	return fmt.Sprintf(`"%s:%d:%d:%d%s"`, t.table.UUID, t.stream.Bucket(), from, k.next, closed)
}

func notModified(r *http.Request, etag string) bool {
	for _, given := range r.Header.Values("If-None-Match") {
		for candidate := range strings.SplitSeq(given, ",") {
			if strings.TrimPrefix(strings.TrimSpace(candidate), "W/") == etag || strings.TrimSpace(candidate) == "*" {
				return true
			}
		}
	}
	return false
}

// cacheControl lets caches keep chunks, which never change. A chunk that ends at the end of the stream grows, so it is kept for less long.
func cacheControl(t target, k chunk) string {
	if k.upToDate && len(k.values) == 0 {
		return "no-store"
	}
	return "public, max-age=60, stale-while-revalidate=300"
}

// longPoll answers when there is data, when the stream ends, or after a time with 204.
func (s *Server) longPoll(c echo.Context, t target, r request, offset int64) error {
	s.metrics.live.WithLabelValues(liveLongPoll).Inc()
	defer s.metrics.live.WithLabelValues(liveLongPoll).Dec()
	ctx, stop := s.liveContext(c, s.options.LongPollTimeout)
	defer stop()
	if offset > t.stream.End() {
		// There is nothing to wait for: the engine says why, once it is sure that this end is not that of a leader that was replaced.
		if _, err := s.chunk(ctx, t, offset); err != nil {
			return err
		}
	}
	if err := t.stream.Wait(ctx, offset); err != nil && ctx.Err() == nil {
		return err
	}
	if s.live.Err() != nil {
		return fail(http.StatusServiceUnavailable, "unavailable", "the node is stopping").with("Retry-After", retryAfter)
	}
	k, err := s.chunk(c.Request().Context(), t, offset)
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h.Set(headerCursor, nextCursor(r.cursor, time.Now()))
	if len(k.values) == 0 && k.next == offset {
		h.Set("Cache-Control", "no-store")
		k.setHeaders(h)
		return c.NoContent(http.StatusNoContent)
	}
	h.Set("ETag", s.etag(t, offset, k))
	h.Set("Cache-Control", cacheControl(t, k))
	return s.answerChunk(c, t, k)
}

// liveContext ends with the request, after a time, and when the server stops.
func (s *Server) liveContext(c echo.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(c.Request().Context(), limit)
	unlink := context.AfterFunc(s.live, cancel)
	return ctx, func() { unlink(); cancel() }
}
