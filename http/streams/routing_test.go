package streams

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/engine"
	"github.com/varvedb/varve/ops/settings"
)

// elsewhere is a broker whose streams another node leads.
type elsewhere struct {
	table   layer.TableRow
	created bool // the table exists
	leader  string
}

func (b *elsewhere) Table(_ context.Context, name string) (layer.TableRow, error) {
	if !b.created {
		return layer.TableRow{}, nodes.ErrUnknownTable
	}
	return b.table, nil
}

func (b *elsewhere) Tables() []layer.TableRow { return nil }

func (b *elsewhere) Stream(_ context.Context, table string, bucket int) (*engine.Stream, error) {
	return nil, &nodes.NotLeader{Leader: layer.NodeRow{ID: 2, HTTP: b.leader}, Table: table, Bucket: bucket}
}

func (b *elsewhere) CreateTable(context.Context, nodes.CreateTable) (layer.TableRow, error) {
	b.created = true
	return b.table, nil
}

func (b *elsewhere) DeleteTable(context.Context, string) error { return nil }

// follower serves a node that leads nothing, with the given routing, and gives its URL. The leader answers as told.
func follower(t *testing.T, routing Routing, broker *elsewhere, leader http.HandlerFunc) string {
	t.Helper()
	upstream := httptest.NewServer(leader)
	t.Cleanup(upstream.Close)
	if broker.leader == "" {
		broker.leader = strings.TrimPrefix(upstream.URL, "http://")
	}
	options := settings.Default[Options]()
	options.Routing = routing
	s, err := New(t.Context(), options, broker, slog.New(slog.DiscardHandler), NewMetrics(nil))
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-served)
	})
	return "http://" + l.Addr().String()
}

func existing() *elsewhere {
	return &elsewhere{table: layer.TableRow{ID: 1, Name: "a", UUID: uuid.New(), Buckets: 1}, created: true}
}

// ask sends a request without following redirects.
func ask(t *testing.T, method, url, body string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

func unasked(t *testing.T) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the leader was asked") }
}

func TestRoutingLocalAndRedirect(t *testing.T) {
	answer := ask(t, http.MethodPost, follower(t, RoutingLocal, existing(), unasked(t))+Prefix+"a", "x")
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.NotEmpty(t, answer.Header.Get("Retry-After"))

	broker := existing()
	answer = ask(t, http.MethodGet, follower(t, RoutingRedirect, broker, unasked(t))+Prefix+"a?offset=7", "")
	require.Equal(t, http.StatusTemporaryRedirect, answer.StatusCode)
	require.Equal(t, "http://"+broker.leader+Prefix+"a?offset=7", answer.Header.Get("Location"))
}

func TestProxyPassesRequestAndAnswer(t *testing.T) {
	node := follower(t, RoutingProxy, existing(), func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		require.Equal(t, "one;two", string(body))
		require.Equal(t, Prefix+"a%2Fb?partition=1;x", r.URL.RequestURI())
		require.Equal(t, "p", r.Header.Get("Producer-Id"))
		require.NotEmpty(t, r.Header.Get(headerForwarded))
		w.Header().Set("Access-Control-Allow-Origin", "https://example.org")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set(headerNextOffset, "9")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, "no")
	})
	answer := ask(t, http.MethodPost, node+Prefix+"a%2Fb?partition=1;x", "one;two", "Content-Type", "text/plain", "Origin", "https://example.org",
		"Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0")
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, answer.StatusCode)
	require.Equal(t, "no", string(body))
	require.Equal(t, "9", answer.Header.Get(headerNextOffset))
	for _, once := range []string{"Access-Control-Allow-Origin", "X-Content-Type-Options"} {
		require.Len(t, answer.Header.Values(once), 1, once)
	}
}

func TestProxyPassesEventsAtOnce(t *testing.T) {
	more, left := make(chan struct{}), make(chan struct{})
	node := follower(t, RoutingProxy, existing(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data:1\n\n")
		require.NoError(t, http.NewResponseController(w).Flush())
		<-more
		fmt.Fprint(w, "data:2\n\n")
		require.NoError(t, http.NewResponseController(w).Flush())
		<-r.Context().Done() // the client leaves, and the leader is told
		close(left)
	})
	answer := ask(t, http.MethodGet, node+Prefix+"a?offset=-1&live=sse", "")
	lines := bufio.NewScanner(answer.Body)
	require.True(t, lines.Scan())
	require.Equal(t, "data:1", lines.Text())
	close(more)
	require.True(t, lines.Scan())
	require.True(t, lines.Scan())
	require.Equal(t, "data:2", lines.Text())
	answer.Body.Close()
	<-left
}

func TestProxyIsNotALoop(t *testing.T) {
	answer := ask(t, http.MethodGet, follower(t, RoutingProxy, existing(), unasked(t))+Prefix+"a", "", headerForwarded, "1")
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
}

func TestProxyWithoutLeader(t *testing.T) {
	broker := existing()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	broker.leader = l.Addr().String()
	require.NoError(t, l.Close())
	answer := ask(t, http.MethodPost, follower(t, RoutingProxy, broker, unasked(t))+Prefix+"a", "x")
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.NotEmpty(t, answer.Header.Get("Retry-After"))
}

// A stream that is made here and led elsewhere is filled there, whatever the routing: a redirect would find it made and empty.
func TestFirstContentGoesToTheLeader(t *testing.T) {
	for _, routing := range []Routing{RoutingLocal, RoutingRedirect, RoutingProxy} {
		broker := existing()
		broker.created = false
		node := follower(t, routing, broker, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			require.Equal(t, "first", string(body))
			require.Equal(t, broker.table.UUID.String(), r.Header.Get(headerCreated))
			w.WriteHeader(http.StatusCreated)
		})
		answer := ask(t, http.MethodPut, node+Prefix+"a", "first", "Content-Type", "text/plain", headerCreated, "forged")
		require.Equal(t, http.StatusCreated, answer.StatusCode, routing)
	}
}

func TestRefusalsSayWhatIsWrong(t *testing.T) {
	url := follower(t, RoutingLocal, &elsewhere{}, unasked(t))
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		code, says         string
	}{
		{http.MethodGet, "/", "", nil, http.StatusNotFound, "not_found", "streams are at /v1/stream/{path}"},
		{http.MethodPatch, Prefix + "a", "", nil, http.StatusMethodNotAllowed, "method_not_allowed", "PATCH is not a method of streams"},
		{http.MethodGet, Prefix + "a", "", nil, http.StatusNotFound, "not_found", "no such stream or topic"},
		{http.MethodPut, Prefix + "a", "[1", []string{"Content-Type", typeJSON}, http.StatusBadRequest, "invalid_json", "unexpected end of JSON input at byte 2"},
		{http.MethodPut, Prefix + "a", `{} {}`, []string{"Content-Type", typeJSON}, http.StatusBadRequest, "invalid_json", "several go into an array"},
		{http.MethodPut, Prefix + "a", "", []string{"Content-Type", "nonsense"}, http.StatusBadRequest, "invalid_content_type", `"nonsense": want a media type`},
		{http.MethodPut, Prefix + "a", "", []string{headerForkedFrom, "/b"}, http.StatusNotImplemented, "not_implemented", "forks are not offered"},
	} {
		answer := ask(t, c.method, url+c.path, c.body, c.header...)
		var body errorBody
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&body), c)
		require.Equal(t, c.status, answer.StatusCode, c)
		require.Equal(t, c.code, body.Error, c)
		require.Contains(t, body.Message, c.says)
	}
}
