package streams

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/engine"
)

// reserved is the first path segment that belongs to the protocol's control APIs.
const reserved = "__ds"

// target is the stream that a request is about.
type target struct {
	name   string
	table  layer.TableRow
	stream *engine.Stream
}

// media is the stream's content type as it was set, and in comparable form.
func (t target) media() (stored, comparable string) {
	stored = t.table.Options[nodes.OptionHTTPContentType]
	if stored == "" {
		stored = typeBinary
	}
	return stored, mediaOf(stored)
}

func (t target) json() bool {
	_, media := t.media()
	return media == typeJSON
}

// target finds the stream of a request, which must exist, be served here and not have expired.
func (s *Server) target(ctx context.Context, c echo.Context) (target, error) {
	name, err := streamName(c.Request())
	if err != nil {
		return target{}, err
	}
	table, err := s.broker.Table(ctx, name)
	if err != nil {
		return target{}, err
	}
	bucket, err := partition(c, table)
	if err != nil {
		return target{}, err
	}
	stream, err := s.broker.Stream(ctx, name, bucket)
	if err != nil {
		return target{}, err
	}
	return target{name: name, table: table, stream: stream}, s.expiry.check(ctx, table)
}

// partition is the bucket that the request names; a table with several must have one named.
func partition(c echo.Context, table layer.TableRow) (int, error) {
	text := c.QueryParam("partition")
	if text == "" {
		if table.Buckets > 1 {
			return 0, badRequest("partition_required", "topic %q has %d partitions: choose one by ?partition=", table.Name, table.Buckets)
		}
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, badRequest("invalid_partition", "partition %.64q: want a whole number from 0", text)
	}
	return n, nil
}

// streamName is the part of the path that names the stream, in one spelling: unreserved characters are not percent-encoded.
func streamName(r *http.Request) (string, error) {
	name := normalise(strings.TrimPrefix(r.URL.EscapedPath(), Prefix))
	first, _, _ := strings.Cut(name, "/")
	if first == reserved {
		return "", fail(http.StatusNotImplemented, "not_implemented", "the control APIs under %s are not offered", reserved)
	}
	if err := nodes.ValidateName(name); err != nil {
		return "", err
	}
	return name, nil
}

// normalise decodes percent-encoded unreserved characters and writes other escapes in upper case (RFC 3986 6.2.2).
func normalise(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+2 >= len(path) {
			b.WriteByte(path[i])
			continue
		}
		n, err := strconv.ParseUint(path[i+1:i+3], 16, 8)
		switch {
		case err != nil:
			b.WriteByte(path[i])
			continue
		case unreserved(byte(n)):
			b.WriteByte(byte(n))
		default:
			b.WriteString(strings.ToUpper(path[i : i+3]))
		}
		i += 2
	}
	return b.String()
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// redirectTo is the URL of the request at the stream's leader.
func redirectTo(err error, r *http.Request) string {
	var leader *nodes.NotLeader
	if !errors.As(err, &leader) {
		return ""
	}
	return "http://" + leader.Leader.HTTP + r.URL.RequestURI()
}
