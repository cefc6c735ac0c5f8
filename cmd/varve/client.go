package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvedb/varve/ops/settings"
	"github.com/varvedb/varve/wiring"
)

// endpoints is where client commands find a node: what they were told, else what the process that serves the data directory
// listens on, else the default addresses.
type endpoints struct {
	dataDir            string
	kafka, http, admin string
}

func (e *endpoints) bind(c *cobra.Command) {
	d := wiring.DefaultConfig().Process
	f := c.PersistentFlags()
	f.StringVar(&e.dataDir, "data-dir", fromEnv("data-dir", d.DataDir), "data directory of a local node, whose listeners.json tells its addresses")
	f.StringVar(&e.http, "http", fromEnv("http", ""), "host:port of a node's HTTP listener")
	f.StringVar(&e.kafka, "kafka", fromEnv("kafka", ""), "host:port of a node's Kafka listener")
	f.StringVar(&e.admin, "admin", fromEnv("admin", ""), "host:port of a node's admin listener")
}

func fromEnv(flag, otherwise string) string {
	if text, ok := os.LookupEnv(settings.Env(flag)); ok {
		return text
	}
	return otherwise
}

// resolve fills in the addresses that were not given.
func (e *endpoints) resolve() {
	d := wiring.DefaultConfig().Process
	local, err := wiring.ReadAddresses(e.dataDir)
	if err != nil {
		local = wiring.Addresses{Kafka: d.KafkaListen, HTTP: d.HTTPListen, Admin: d.AdminListen}
	}
	for _, a := range []struct {
		to   *string
		from string
	}{{&e.kafka, local.Kafka}, {&e.http, local.HTTP}, {&e.admin, local.Admin}} {
		if *a.to == "" {
			*a.to = a.from
		}
	}
}

// maxReply bounds the answers that a command keeps in memory, bytes.
const maxReply = 64 << 20

// call does one HTTP request and returns the answer with its body still open. A status of 400 and above is an error with the server's message.
func call(ctx context.Context, method, address string, header http.Header, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, &usageError{err}
	}
	for name, values := range header {
		r.Header[name] = values
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < 400 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
	var told struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &told) == nil && told.Message != "" {
		return nil, fmt.Errorf("%s (%s)", told.Message, answer.Status)
	}
	return nil, fmt.Errorf("%s %s: %s %s", method, address, answer.Status, bytes.TrimSpace(text))
}

// getJSON reads a JSON answer.
func getJSON(ctx context.Context, address string, into any) error {
	answer, err := call(ctx, http.MethodGet, address, nil, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return json.NewDecoder(io.LimitReader(answer.Body, maxReply)).Decode(into)
}

// streamURL is the URL of a stream, given by its path or as a whole URL.
func (e *endpoints) streamURL(name string) string {
	if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		return name
	}
	u := url.URL{Scheme: "http", Host: e.http, Path: "/v1/stream/" + strings.TrimPrefix(name, "/")}
	return u.String()
}

func (e *endpoints) adminURL(path string) string { return "http://" + e.admin + path }
