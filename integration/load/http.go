package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/varvedb/varve/integration/history"
)

// requestTimeout bounds one try of a request.
const requestTimeout = 5 * time.Second

// retryPause is how long clients wait after a failure.
const retryPause = 50 * time.Millisecond

// url is asked for at every try: a node may have come back elsewhere.
func url(address func() string, stream string) string {
	return "http://" + address() + "/v1/stream/" + stream
}

// CreateJSONStream makes a stream of JSON messages.
func CreateJSONStream(ctx context.Context, address func() string, stream string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url(address, stream), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		body, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("create %s: %s %s", stream, answer.Status, body)
	}
	return nil
}

// HTTPWriter appends JSON strings to a stream one after the other, with producer headers, and tries each again until it is answered.
type HTTPWriter struct {
	t       testing.TB
	client  *http.Client
	address func() string
	name    string
	stream  *history.Stream
	cancel  context.CancelFunc // ends the writer before its next append
	abort   context.CancelFunc // gives up the append under way
	done    chan struct{}
}

// StartHTTPWriter starts a writer; the stream exists.
func StartHTTPWriter(t testing.TB, address func() string, name string, stream *history.Stream, every time.Duration) *HTTPWriter {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	life, abort := context.WithCancel(context.Background())
	w := &HTTPWriter{t: t, client: &http.Client{Transport: &http.Transport{}}, address: address, name: name, stream: stream, cancel: cancel, abort: abort, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for number := 0; ctx.Err() == nil; number++ {
			if !w.append(life, number) {
				return
			}
			time.Sleep(every)
		}
	}()
	t.Cleanup(func() { cancel(); abort(); <-w.done; w.client.CloseIdleConnections() })
	return w
}

// append tries until the append is acknowledged, or refused for good.
func (w *HTTPWriter) append(ctx context.Context, number int) bool {
	for ctx.Err() == nil {
		offset, again, err := w.try(ctx, number)
		if err == nil {
			w.stream.Acknowledged(history.Ack{Writer: w.name, Number: number, Offset: offset})
			return true
		}
		if !again {
			w.t.Errorf("writer %s: append %d: %v", w.name, number, err)
			return false
		}
		time.Sleep(retryPause)
	}
	return false
}

func (w *HTTPWriter) try(ctx context.Context, number int) (offset int64, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := json.Marshal(history.Value(w.name, number))
	if err != nil {
		return 0, false, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url(w.address, w.stream.Name), strings.NewReader(string(body)))
	if err != nil {
		return 0, false, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Producer-Id", w.name)
	r.Header.Set("Producer-Epoch", "0")
	r.Header.Set("Producer-Seq", strconv.Itoa(number))
	answer, err := w.client.Do(r)
	if err != nil {
		return 0, true, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, true, err
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		next, err := strconv.ParseInt(answer.Header.Get("Stream-Next-Offset"), 10, 64)
		return next - 1, false, err
	case http.StatusServiceUnavailable:
		return 0, true, errors.New(answer.Status)
	}
	return 0, false, fmt.Errorf("%s %s", answer.Status, text)
}

// Stop ends the writer after the append that is under way, which must be answered in time.
func (w *HTTPWriter) Stop(within time.Duration) {
	w.t.Helper()
	w.cancel()
	select {
	case <-w.done:
	case <-time.After(within):
		w.t.Errorf("writer %s: an append is not acknowledged after %v", w.name, within)
		w.abort()
		<-w.done
	}
}

// HTTPReader follows a stream by long poll from its beginning.
type HTTPReader struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// StartHTTPReader starts a reader.
func StartHTTPReader(t testing.TB, address func() string, name string, stream *history.Stream) *HTTPReader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &HTTPReader{cancel: cancel, done: make(chan struct{})}
	client := &http.Client{Transport: &http.Transport{}}
	go func() {
		defer close(r.done)
		defer client.CloseIdleConnections()
		for next := int64(0); ctx.Err() == nil; {
			values, after, err := read(ctx, client, url(address, stream.Name), next, "&live=long-poll")
			if err != nil {
				time.Sleep(retryPause)
				continue
			}
			for i, value := range values {
				stream.Got(name, history.Read{Offset: next + int64(i), Value: value})
			}
			if want := next + int64(len(values)); after != want {
				t.Errorf("reader %s: %d messages from offset %d end at %d", name, len(values), next, after)
				return
			}
			next = after
		}
	}()
	t.Cleanup(r.Stop)
	return r
}

// Stop ends the reader.
func (r *HTTPReader) Stop() {
	r.cancel()
	<-r.done
}

func read(ctx context.Context, client *http.Client, stream string, from int64, more string) (values []string, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s?offset=%d%s", stream, from, more), nil)
	if err != nil {
		return nil, 0, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, 0, err
	}
	if answer.StatusCode >= 300 {
		return nil, 0, fmt.Errorf("%s %s", answer.Status, body)
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &values); err != nil {
			return nil, 0, fmt.Errorf("%w in %.200q", err, body)
		}
	}
	next, err = strconv.ParseInt(answer.Header.Get("Stream-Next-Offset"), 10, 64)
	return values, next, err
}

// ReadStream reads a stream of JSON strings from offset 0 to its end.
func ReadStream(ctx context.Context, address func() string, stream string) ([]history.Read, error) {
	var all []history.Read
	for {
		values, next, err := read(ctx, http.DefaultClient, url(address, stream), int64(len(all)), "")
		if err != nil {
			return all, err
		}
		for _, value := range values {
			all = append(all, history.Read{Offset: int64(len(all)), Value: value})
		}
		if next != int64(len(all)) {
			return all, fmt.Errorf("stream %s: read %d messages, the next offset is %d", stream, len(all), next)
		}
		if len(values) == 0 {
			return all, nil
		}
	}
}
