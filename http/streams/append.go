package streams

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
)

func one(b batch.Batch) []batch.Batch { return []batch.Batch{b} }

// append is POST: it appends, closes, or both (protocol sections 5.2 and 5.3). It is answered when what it appended is durable.
func (s *Server) append(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), s.options.AppendTimeout)
	defer cancel()
	h := c.Request().Header
	producer, err := producerOf(h)
	if err != nil {
		return err
	}
	t, err := s.target(ctx, c)
	if err != nil {
		return err
	}
	body, err := s.readBody(c)
	if err != nil {
		return err
	}
	s.expiry.touch(t.table)
	if len(body) == 0 {
		return s.closeOnly(ctx, c, t, producer)
	}
	a, err := s.appendOf(c, t, body, producer)
	if err != nil {
		return err
	}
	var result engine.AppendResult
	if closes(h) {
		result, err = t.stream.EndStream(ctx, &a)
	} else {
		result, err = t.stream.Append(ctx, a)
	}
	if err != nil {
		return err
	}
	s.metrics.bytesIn.Add(float64(len(body)))
	return answerAppended(c, t, producer, result)
}

// appendOf checks a body against the stream, the most important refusal first.
func (s *Server) appendOf(c echo.Context, t target, body []byte, producer *engine.Producer) (engine.Append, error) {
	h := c.Request().Header
	sent, media, err := contentType(h)
	if err != nil {
		return engine.Append{}, err
	}
	if end, ended := t.stream.Ended(); ended && producer == nil {
		return engine.Append{}, &engine.EndedError{Stream: t.stream.ID(), End: end}
	}
	if sent == "" {
		return engine.Append{}, badRequest("content_type_required", "an append needs the content type of the stream")
	}
	if stored, want := t.media(); media != want {
		return engine.Append{}, fail(http.StatusConflict, "content_type_mismatch", "content type %.64q: the stream has %q", sent, stored)
	}
	seq := h.Get(headerSeq)
	if len(seq) > maxHeader {
		return engine.Append{}, badRequest("invalid_seq", "%s has more than %d bytes", headerSeq, maxHeader)
	}
	all, err := messages(body, t.json())
	if err != nil {
		return engine.Append{}, err
	}
	if len(all) == 0 {
		return engine.Append{}, badRequest("empty_array", "an empty JSON array appends nothing")
	}
	b, err := batchOf(all, seq, time.Now())
	return engine.Append{Batches: one(b), Producer: producer, WriterSeq: seq}, err
}

// closeOnly ends the stream without a last append. Ending one that has ended is a success.
func (s *Server) closeOnly(ctx context.Context, c echo.Context, t target, producer *engine.Producer) error {
	if !closes(c.Request().Header) {
		return badRequest("empty_body", "an append needs a body; to close the stream send %s: true", headerClosed)
	}
	if _, err := t.stream.EndStream(ctx, nil); err != nil {
		return err
	}
	h := c.Response().Header()
	if producer != nil {
		h.Set(headerProducerEpoch, strconv.FormatInt(producer.Epoch, 10))
		h.Set(headerProducerSeq, strconv.FormatInt(producer.Seq, 10))
	}
	h.Set(headerNextOffset, formatOffset(t.stream.End()))
	h.Set(headerClosed, "true")
	return c.NoContent(http.StatusNoContent)
}

func answerAppended(c echo.Context, t target, producer *engine.Producer, result engine.AppendResult) error {
	h := c.Response().Header()
	next := result.Last + 1
	if result.Last < 0 {
		next = t.stream.End()
	}
	h.Set(headerNextOffset, formatOffset(next))
	if _, ended := t.stream.Ended(); ended {
		h.Set(headerClosed, "true")
	}
	status := http.StatusNoContent
	if producer != nil {
		h.Set(headerProducerEpoch, strconv.FormatInt(producer.Epoch, 10))
		h.Set(headerProducerSeq, strconv.FormatInt(result.ProducerSeq, 10))
		if !result.Duplicate {
			status = http.StatusOK
		}
	}
	return c.NoContent(status)
}
