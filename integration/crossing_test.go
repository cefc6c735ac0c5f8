package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/integration/process"
)

// noRedirects is a client for one node, which has nowhere to send anybody.
func noRedirects() *http.Client {
	return &http.Client{
		Timeout:       30 * time.Second,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error { return fmt.Errorf("redirected to %s", r.URL) },
	}
}

// call does a request of the streams API and gives the answer, which must have the status, and its body.
func call(t *testing.T, method, address, contentType, body string, status int) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	require.NoError(t, err)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := noRedirects().Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, status, answer.StatusCode, "%s %s: %s", method, address, text)
	return answer, string(text)
}

func kafkaClient(t *testing.T, node *process.Node, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(node.Kafka))...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func produce(t *testing.T, client *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, client.ProduceSync(ctx, records...).FirstErr())
}

// TestTopicOverHTTP reads what Kafka wrote.
func TestTopicOverHTTP(t *testing.T) {
	node := process.New(t, process.Options{Binary: binary})
	node.Start()
	node.AwaitReady()
	client := kafkaClient(t, node, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	admin := kadm.NewClient(client)
	isJSON := "application/json"
	_, err := admin.CreateTopic(t.Context(), 2, -1, map[string]*string{"http.content.type": &isJSON}, "orders")
	require.NoError(t, err)
	_, err = admin.CreateTopic(t.Context(), 1, -1, nil, "lines")
	require.NoError(t, err)
	produce(t, client,
		&kgo.Record{Topic: "orders", Partition: 0, Key: []byte("k"), Value: []byte(`{"n":1}`)},
		&kgo.Record{Topic: "orders", Partition: 0, Value: []byte(`not json`)},
		&kgo.Record{Topic: "orders", Partition: 0, Key: []byte("k")},
		&kgo.Record{Topic: "orders", Partition: 1, Value: []byte(`[2]`)},
		&kgo.Record{Topic: "lines", Value: []byte("one\n")},
		&kgo.Record{Topic: "lines", Value: []byte("two\n")},
	)

	_, body := call(t, http.MethodGet, streamAddress(node, "orders"), "", "", http.StatusBadRequest)
	require.Contains(t, body, "partition_required")
	answer, body := call(t, http.MethodGet, streamAddress(node, "orders")+"?partition=0", "", "", http.StatusOK)
	require.Equal(t, `[{"n":1},"not json",null]`, body)
	require.Equal(t, isJSON, answer.Header.Get("Content-Type"))
	require.Equal(t, fmt.Sprintf("%020d", 3), answer.Header.Get("Stream-Next-Offset"))
	_, body = call(t, http.MethodGet, streamAddress(node, "orders")+"?partition=1", "", "", http.StatusOK)
	require.Equal(t, `[[2]]`, body)
	call(t, http.MethodGet, streamAddress(node, "orders")+"?partition=2", "", "", http.StatusNotFound)
	_, body = call(t, http.MethodGet, streamAddress(node, "lines")+"?offset=1", "", "", http.StatusOK)
	require.Equal(t, "two\n", body)

	// What is appended over HTTP is a record of the topic.
	call(t, http.MethodPost, streamAddress(node, "lines"), "application/octet-stream", "three\n", http.StatusNoContent)
	require.Equal(t, []string{"one\n", "two\n", "three\n"}, consume(t, node, "lines", 3))
}

// consume reads the first records of partition 0 of a topic by Kafka.
func consume(t *testing.T, node *process.Node, topic string, count int) (values []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client := kafkaClient(t, node, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	for len(values) < count {
		fetched := client.PollFetches(ctx)
		require.NoError(t, errors.Join(ctx.Err(), fetched.Err()))
		fetched.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

// TestStreamOverKafka reads and writes by Kafka what HTTP made.
func TestStreamOverKafka(t *testing.T) {
	node := process.New(t, process.Options{Binary: binary})
	node.Start()
	node.AwaitReady()
	address := streamAddress(node, "rooms/lobby")
	call(t, http.MethodPut, address, "application/json", "", http.StatusCreated)
	call(t, http.MethodPost, address, "application/json", `[{"say":"hello"}, {"say": "world"}]`, http.StatusNoContent)
	values := consume(t, node, "rooms/lobby", 2)
	require.JSONEq(t, `{"say":"hello"}`, values[0])
	require.JSONEq(t, `{"say":"world"}`, values[1])

	produce(t, kafkaClient(t, node), &kgo.Record{Topic: "rooms/lobby", Value: []byte(`{"say":"over Kafka"}`)})
	_, body := call(t, http.MethodGet, address+"?offset=2", "", "", http.StatusOK)
	require.Equal(t, `[{"say":"over Kafka"}]`, body)
}

// TestLongPoll waits at the tail until something comes, over Kafka as well.
func TestLongPoll(t *testing.T) {
	node := process.New(t, process.Options{Binary: binary, Args: []string{"--http-long-poll-timeout", "1s"}})
	node.Start()
	node.AwaitReady()
	address := streamAddress(node, "poll")
	call(t, http.MethodPut, address, "text/plain", "first", http.StatusCreated)

	answer, body := call(t, http.MethodGet, address+"?offset=1&live=long-poll", "", "", http.StatusNoContent)
	require.Empty(t, body)
	require.Equal(t, "true", answer.Header.Get("Stream-Up-To-Date"))
	next := answer.Header.Get("Stream-Next-Offset")
	for n := range 3 {
		type got struct {
			body, next string
			err        error
		}
		waits := make(chan got, 1)
		go func() {
			answer, err := noRedirects().Get(address + "?live=long-poll&offset=" + url.QueryEscape(next))
			if err != nil {
				waits <- got{err: err}
				return
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			waits <- got{string(text), answer.Header.Get("Stream-Next-Offset"), err}
		}()
		want := fmt.Sprintf("message %d", n)
		if n == 1 {
			produce(t, kafkaClient(t, node), &kgo.Record{Topic: "poll", Value: []byte(want)})
		} else {
			call(t, http.MethodPost, address, "text/plain", want, http.StatusNoContent)
		}
		answer := <-waits
		require.NoError(t, answer.err)
		require.Equal(t, want, answer.body)
		require.Greater(t, answer.next, next, "offsets sort as text")
		next = answer.next
	}
}

// event is one of a stream of server-sent events.
type event struct{ name, data, id string }

// TestServerSentEvents follows a stream while it is written to by both protocols, and to its end.
func TestServerSentEvents(t *testing.T) {
	node := process.New(t, process.Options{Binary: binary})
	node.Start()
	node.AwaitReady()
	address := streamAddress(node, "tail")
	call(t, http.MethodPut, address, "application/json", "", http.StatusCreated)
	answer, err := noRedirects().Get(address + "?offset=-1&live=sse")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	events := bufio.NewScanner(answer.Body)

	require.Equal(t, "control", nextEvent(t, events).name, "an empty stream says where it ends")
	call(t, http.MethodPost, address, "application/json", `[1,2]`, http.StatusNoContent)
	require.Equal(t, event{"data", "[1,2]", fmt.Sprintf("%020d", 2)}, nextEvent(t, events))
	require.Equal(t, fmt.Sprintf("%020d", 2), controlOf(t, nextEvent(t, events)).Next)
	produce(t, kafkaClient(t, node), &kgo.Record{Topic: "tail", Value: []byte(`{"by":"Kafka"}`)})
	require.Equal(t, event{"data", `[{"by":"Kafka"}]`, fmt.Sprintf("%020d", 3)}, nextEvent(t, events))
	require.Equal(t, fmt.Sprintf("%020d", 3), controlOf(t, nextEvent(t, events)).Next)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
	require.NoError(t, err)
	r.Header.Set("Stream-Closed", "true")
	closed, err := noRedirects().Do(r)
	require.NoError(t, err)
	closed.Body.Close()
	require.Equal(t, http.StatusNoContent, closed.StatusCode)
	require.True(t, controlOf(t, nextEvent(t, events)).Closed)
	require.False(t, events.Scan(), "nothing follows the end: %q", events.Text())

	// As an EventSource connects again: behind the event that it had last, whatever its URL says, and never to a stream that has ended.
	resume := func(id string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"?offset=-1&live=sse", nil)
		require.NoError(t, err)
		r.Header.Set("Last-Event-ID", id)
		answer, err := noRedirects().Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	require.Equal(t, http.StatusNoContent, resume(fmt.Sprintf("%020d", 3)).StatusCode)
	again := bufio.NewScanner(resume(fmt.Sprintf("%020d", 2)).Body)
	require.Equal(t, `[{"by":"Kafka"}]`, nextEvent(t, again).data)
	again = bufio.NewScanner(resume("of another server").Body)
	require.Equal(t, `[1,2,{"by":"Kafka"}]`, nextEvent(t, again).data)
}

type controlEvent struct {
	Next   string `json:"streamNextOffset"`
	Closed bool   `json:"streamClosed"`
}

func controlOf(t *testing.T, e event) (c controlEvent) {
	t.Helper()
	require.Equal(t, "control", e.name)
	require.NoError(t, json.Unmarshal([]byte(e.data), &c))
	return c
}

// nextEvent reads one event, whose lines end with an empty one.
func nextEvent(t *testing.T, lines *bufio.Scanner) (e event) {
	t.Helper()
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		switch field {
		case "":
			if e.name != "" {
				return e
			}
		case "event":
			e.name = strings.TrimPrefix(value, " ")
		case "data":
			e.data += strings.TrimPrefix(value, " ")
		case "id":
			e.id = value
		}
	}
	t.Fatalf("the events ended: %v", lines.Err())
	return e
}
