package admin

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/ops"
)

// fake is a node of which only the actions are asked for.
type fake struct {
	Node
	holder string // admin address of the lease holder; empty when it is this node
	fenced []int64
	moved  []StreamAction
	slots  map[int64]int
}

func (f *fake) FenceNode(_ context.Context, id int64) error {
	if f.holder != "" {
		return &nodes.NotController{Holder: layer.NodeRow{ID: 9, Admin: f.holder}}
	}
	f.fenced = append(f.fenced, id)
	return nil
}

func (f *fake) Transfer(_ context.Context, table string, bucket int, to int64) (layer.TransferRow, error) {
	if table != "known" {
		return layer.TransferRow{}, nodes.ErrUnknownTable
	}
	f.moved = append(f.moved, StreamAction{table, bucket, to})
	return layer.TransferRow{Stream: 5, From: 1, To: to, LeaderEpoch: 3}, nil
}

func (f *fake) SetSlots(_ context.Context, node int64, slots int) error {
	f.slots = map[int64]int{node: slots}
	return nil
}

func (f *fake) ResetSlots(_ context.Context, node int64) error {
	delete(f.slots, node)
	return nil
}

func (f *fake) BucketStatuses(context.Context, string) ([]nodes.BucketStatus, error) {
	return make([]nodes.BucketStatus, 1), nil
}

func serveFake(t *testing.T, f *fake) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(New(t.Context(), f, nil, prometheus.NewRegistry(), ops.Build{}, slog.New(slog.DiscardHandler)).Handler())
	t.Cleanup(s.Close)
	return s
}

// post sends an action and gives status and body.
func post(t *testing.T, url, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

func TestActions(t *testing.T) {
	f := &fake{}
	s := serveFake(t, f)
	status, body := post(t, s.URL+"/admin/transfer", `{"stream":"known","bucket":2,"to":3}`)
	require.Equal(t, http.StatusAccepted, status, body)
	require.Contains(t, body, `"leader_epoch":3`)
	require.Equal(t, []StreamAction{{"known", 2, 3}}, f.moved)
	status, _ = post(t, s.URL+"/admin/transfer", `{"stream":"unknown","to":3}`)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = post(t, s.URL+"/admin/slots", `{"node":3,"slots":0}`)
	require.Equal(t, http.StatusNoContent, status)
	require.Equal(t, map[int64]int{3: 0}, f.slots)
	status, _ = post(t, s.URL+"/admin/undrain", `{"node":3}`)
	require.Equal(t, http.StatusNoContent, status)
	require.Empty(t, f.slots)
	status, body = post(t, s.URL+"/admin/transfer/cancel", `{"stream":"known","bucket":5}`)
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "no such partition: 5 of")
}

func TestMalformedActionsAreRefused(t *testing.T) {
	f := &fake{}
	s := serveFake(t, f)
	for body, want := range map[string]string{
		``: "EOF", `{"node":1`: "EOF", `{"node":"1"}`: "cannot unmarshal", `{"nodes":1}`: "unknown field", `{"node":1} {}`: "more than one",
		`{"node":1,"slots":` + strings.Repeat(" ", maxAction) + `1}`: "too large",
	} {
		status, text := post(t, s.URL+"/admin/fence", body)
		require.Equal(t, http.StatusBadRequest, status, body)
		require.Contains(t, text, want)
	}
	status, _ := post(t, s.URL+"/admin/slots", `{"node":1}`)
	require.Equal(t, http.StatusBadRequest, status)
	// What a web page of any origin can send without being asked for leave.
	for _, simple := range []string{"text/plain", "application/x-www-form-urlencoded", ""} {
		status, _ := post(t, s.URL+"/admin/fence", `{"node":1}`, "Content-Type", simple)
		require.Equal(t, http.StatusUnsupportedMediaType, status)
	}
	require.Empty(t, f.fenced)
}

func TestFenceIsSentOnToTheHolderOnce(t *testing.T) {
	holder := &fake{}
	address := strings.TrimPrefix(serveFake(t, holder).URL, "http://")
	status, body := post(t, serveFake(t, &fake{holder: address}).URL+"/admin/fence", `{"node":7}`)
	require.Equal(t, http.StatusNoContent, status, body)
	require.Equal(t, []int64{7}, holder.fenced)

	// Two nodes that each take the other for the holder.
	second := serveFake(t, &fake{holder: address})
	holder.holder = strings.TrimPrefix(second.URL, "http://")
	status, body = post(t, second.URL+"/admin/fence", `{"node":7}`)
	require.Equal(t, http.StatusServiceUnavailable, status, body)

	status, body = post(t, serveFake(t, &fake{holder: "127.0.0.1:1"}).URL+"/admin/fence", `{"node":7}`)
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	require.Contains(t, body, "lease holder")
}
