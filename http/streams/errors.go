package streams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/engine"
	"github.com/varvedb/varve/wal/segment"
)

// failure is an answer that is not a success.
type failure struct {
	status  int
	code    string // for programs
	message string // for people
	headers map[string]string
}

func (f *failure) Error() string { return f.message }

func fail(status int, code, format string, args ...any) *failure {
	return &failure{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func badRequest(code, format string, args ...any) *failure {
	return fail(http.StatusBadRequest, code, format, args...)
}

func (f *failure) with(name, value string) *failure {
	if f.headers == nil {
		f.headers = map[string]string{}
	}
	f.headers[name] = value
	return f
}

// retryAfter is what clients that are asked to try again are told, seconds.
const retryAfter = "1"

// failureOf maps what nodes and the engine refuse to answers of the protocol. It is the only such table.
func failureOf(err error) *failure {
	var (
		f        *failure
		producer *engine.ProducerError
		writer   *engine.WriterSeqError
		ended    *engine.EndedError
		outside  *engine.OffsetOutOfRange
		leader   *nodes.NotLeader
		corrupt  *segment.CorruptError
		missing  *engine.MissingObjectError
		tooLarge *http.MaxBytesError
	)
	unavailable := func() *failure {
		return fail(http.StatusServiceUnavailable, "unavailable", "%v", err).with("Retry-After", retryAfter)
	}
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &tooLarge):
		return fail(http.StatusRequestEntityTooLarge, "too_large", "the body is larger than %d bytes", tooLarge.Limit)
	case errors.As(err, &producer):
		return producerFailure(producer)
	case errors.As(err, &ended):
		return fail(http.StatusConflict, "stream_closed", "the stream was closed at offset %d: nothing can be appended", ended.End).with(headerClosed, "true").with(headerNextOffset, formatOffset(ended.End))
	case errors.As(err, &writer):
		return fail(http.StatusConflict, "sequence_regression", "%s %.64q does not follow %.64q, that of the append before", headerSeq, writer.Got, writer.Last)
	case errors.As(err, &outside) && outside.Offset < outside.Start:
		return fail(http.StatusGone, "offset_gone", "offset %d was removed by retention: the stream begins at %d", outside.Offset, outside.Start).with(headerNextOffset, formatOffset(outside.Start))
	case errors.As(err, &outside):
		return badRequest("offset_beyond_end", "offset %d is beyond the end of the stream, %d", outside.Offset, outside.End).with(headerNextOffset, formatOffset(outside.End))
	case errors.As(err, &leader) && leader.Leader.HTTP != "":
		return fail(http.StatusTemporaryRedirect, "not_leader", "%v", err)
	case errors.As(err, &leader):
		return unavailable()
	case errors.Is(err, nodes.ErrUnknownTable):
		return fail(http.StatusNotFound, "not_found", "%v", err)
	case errors.Is(err, nodes.ErrUnknownBucket):
		return fail(http.StatusNotFound, "no_such_partition", "%v", err)
	case errors.Is(err, nodes.ErrTableExists):
		return fail(http.StatusConflict, "exists", "%v", err)
	case errors.Is(err, nodes.ErrInvalidName), errors.Is(err, nodes.ErrInvalidOption), errors.Is(err, nodes.ErrInvalidBuckets),
		errors.Is(err, nodes.ErrInvalidRequest), errors.Is(err, engine.ErrInvalid):
		return badRequest("invalid", "%v", err)
	case errors.As(err, &corrupt), errors.As(err, &missing):
		return fail(http.StatusInternalServerError, "corrupt", "%v", err)
	case errors.Is(err, nodes.ErrUnavailable), errors.Is(err, engine.ErrNotOpen), errors.Is(err, engine.ErrBacklogFull), errors.Is(err, engine.ErrTimeout),
		errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrFenced), errors.Is(err, nodes.ErrFenced),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unavailable()
	}
	return fail(http.StatusInternalServerError, "internal", "%v", err)
}

// producerFailure answers a refused idempotent producer (protocol section 5.2.1).
func producerFailure(e *engine.ProducerError) *failure {
	switch {
	case errors.Is(e, engine.ErrInvalidProducerEpoch):
		return fail(http.StatusForbidden, "stale_epoch", "%s %d is fenced: the producer is at epoch %d", headerProducerEpoch, e.GotEpoch, e.Epoch).
			with(headerProducerEpoch, strconv.FormatInt(e.Epoch, 10))
	case e.Epoch >= 0 && e.GotEpoch > e.Epoch:
		return badRequest("epoch_must_begin_at_0", "a new producer epoch begins at sequence 0, got %d", e.GotSeq)
	}
	return fail(http.StatusConflict, "sequence_gap", "%s %d does not follow: %d is expected next at epoch %d", headerProducerSeq, e.GotSeq, e.Expected, e.Epoch).
		with(headerExpectedSeq, strconv.FormatInt(e.Expected, 10)).with(headerReceivedSeq, strconv.FormatInt(e.GotSeq, 10))
}

// routeFailure answers what no route takes.
func routeFailure(he *echo.HTTPError, r *http.Request) *failure {
	switch he.Code {
	case http.StatusNotFound:
		return fail(he.Code, "not_found", "there is nothing at %.200q: streams are at %s{path}", r.URL.Path, Prefix)
	case http.StatusMethodNotAllowed:
		return fail(he.Code, "method_not_allowed", "%.20s is not a method of streams: want PUT, POST, GET, HEAD or DELETE", r.Method)
	}
	return fail(he.Code, "http_error", "%v", he.Message)
}
