package streams

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// sseWriteTimeout is how long a client may take to read one event before the connection is cut: slow readers must not hold memory.
const sseWriteTimeout = 30 * time.Second

// control is the event after each data event (protocol section 5.8).
type control struct {
	NextOffset string `json:"streamNextOffset"`
	Cursor     string `json:"streamCursor,omitempty"`
	UpToDate   bool   `json:"upToDate,omitempty"`
	Closed     bool   `json:"streamClosed,omitempty"`
}

// sse answers with a stream of server-sent events until the stream ends, the client leaves, or the time is over.
func (s *Server) sse(c echo.Context, t target, r request, offset int64) error {
	s.metrics.live.WithLabelValues(liveSSE).Inc()
	defer s.metrics.live.WithLabelValues(liveSSE).Dec()
	ctx, stop := s.liveContext(c, s.options.SSELifetime)
	defer stop()

	// The first chunk is read before the answer begins, so that a refusal still has its status.
	k, err := s.chunk(ctx, t, offset)
	if err != nil {
		return err
	}
	if r.resumed && k.closed && len(k.values) == 0 {
		// An EventSource connects again until it is told that there is nothing more, which is what 204 means to it.
		h := c.Response().Header()
		h.Set(headerNextOffset, formatOffset(k.next))
		h.Set(headerClosed, "true")
		h.Set("Cache-Control", "no-store")
		return c.NoContent(http.StatusNoContent)
	}
	w := &sseWriter{c: c, isJSON: t.json(), text: isText(t), cursor: nextCursor(r.cursor, time.Now()), server: s}
	w.begin()
	defer w.end()
	for {
		if err := w.event(k); err != nil || k.closed {
			return nil // the client left, or there is nothing more to say
		}
		if k.upToDate {
			if err := t.stream.Wait(ctx, k.next); err != nil {
				return nil // the client connects again where the last control event says
			}
		}
		if k, err = s.chunk(ctx, t, k.next); err != nil {
			if ctx.Err() == nil {
				s.logger.Warn("event stream ended by a failed read", "stream", t.name, "offset", k.next, "err", err)
			}
			return nil
		}
	}
}

// isText tells whether the stream's bytes go into events as they are.
func isText(t target) bool {
	_, media := t.media()
	return media == typeJSON || strings.HasPrefix(media, "text/")
}

// sseWriter writes chunks as events.
type sseWriter struct {
	c            echo.Context
	isJSON, text bool
	cursor       string
	server       *Server
	buffer       bytes.Buffer
}

func (w *sseWriter) begin() {
	h := w.c.Response().Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	if !w.text {
		h.Set(headerSSEEncoding, "base64")
	}
	w.c.Response().WriteHeader(http.StatusOK)
}

// end lets the connection serve other requests without the deadline of events.
func (w *sseWriter) end() {
	_ = http.NewResponseController(w.c.Response().Writer).SetWriteDeadline(time.Time{})
}

// event writes a chunk's data, if it has any, and where it ends.
func (w *sseWriter) event(k chunk) error {
	w.buffer.Reset()
	if len(k.values) > 0 {
		w.data(k)
	}
	note := control{NextOffset: formatOffset(k.next), UpToDate: k.upToDate, Closed: k.closed}
	if !k.closed {
		note.Cursor = w.cursor
	}
	line, err := json.Marshal(note)
	if err != nil {
		return err
	}
	w.buffer.WriteString("event: control\ndata:")
	w.buffer.Write(line)
	w.finish(k)
	return w.flush()
}

// finish ends an event with its id: the offset after it, which an EventSource sends as Last-Event-ID when it connects again.
func (w *sseWriter) finish(k chunk) {
	w.buffer.WriteString("\nid:")
	w.buffer.WriteString(formatOffset(k.next))
	w.buffer.WriteString("\n\n")
}

func (w *sseWriter) data(k chunk) {
	w.buffer.WriteString("event: data\n")
	body := k.body(w.isJSON)
	w.server.metrics.bytesOut.Add(float64(len(body)))
	if !w.text {
		w.buffer.WriteString("data:")
		w.buffer.WriteString(base64.StdEncoding.EncodeToString(body))
		w.finish(k)
		return
	}
	// A line break of any kind ends a line of an event, so each line gets its own field.
	for n, line := range splitLines(body) {
		if n > 0 {
			w.buffer.WriteByte('\n')
		}
		w.buffer.WriteString("data:")
		if len(line) > 0 && line[0] == ' ' {
			w.buffer.WriteByte(' ') // readers drop one space after the colon
		}
		w.buffer.Write(line)
	}
	w.finish(k)
}

// splitLines splits at \n, \r\n and \r, which all end a line in an event stream.
func splitLines(b []byte) [][]byte {
	b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
	b = bytes.ReplaceAll(b, []byte("\r"), []byte("\n"))
	return bytes.Split(b, []byte("\n"))
}

func (w *sseWriter) flush() error {
	response := http.NewResponseController(w.c.Response().Writer)
	// Not every writer has deadlines (tests' recorders do not): then the connection's own limits hold.
	_ = response.SetWriteDeadline(time.Now().Add(sseWriteTimeout))
	if _, err := w.c.Response().Write(w.buffer.Bytes()); err != nil {
		return err
	}
	return response.Flush()
}
