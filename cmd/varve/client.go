package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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

// listener is what a command asks: the name of the flag that says where it is, and of what the node serves there.
type listener string

const (
	kafkaListener listener = "kafka"
	httpListener  listener = "http"
	adminListener listener = "admin"
)

// bind adds the flags of the listeners that the commands below c ask.
func (e *endpoints) bind(c *cobra.Command, asked ...listener) {
	d := wiring.DefaultConfig().Process
	f := c.PersistentFlags()
	f.StringVar(&e.dataDir, "data-dir", fromEnv("data-dir", d.DataDir), "data directory of a local node, whose listeners.json tells its addresses")
	for _, l := range asked {
		to := map[listener]*string{kafkaListener: &e.kafka, httpListener: &e.http, adminListener: &e.admin}[l]
		f.StringVar(to, string(l), fromEnv(string(l), ""), fmt.Sprintf("host:port of a node's %s listener", l))
	}
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

// unreached says which listener did not answer, and how another is named.
func unreached(what listener, address string, err error) error {
	var dial *net.OpError
	if !errors.As(err, &dial) || dial.Op != "dial" {
		return err
	}
	return fmt.Errorf("no node serves its %s listener at %s (another: --%s, or --data-dir of a local node): %w", what, address, what, dial)
}

// call does one HTTP request and returns the answer with its body still open. Redirects are followed, for which the body must be one that can be read again. Any status but
// a success is an error with the server's message.
func call(ctx context.Context, method, address string, header http.Header, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, &usageError{err}
	}
	for name, values := range header {
		r.Header[name] = values
	}
	what := httpListener
	if strings.HasPrefix(r.URL.Path, "/admin/") {
		what = adminListener
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, unreached(what, r.URL.Host, err)
	}
	if answer.StatusCode < 300 {
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
	if method == http.MethodHead && answer.StatusCode == http.StatusNotFound { // it has no body to say so
		return nil, fmt.Errorf("no such stream or topic: %s (%s)", address, answer.Status)
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
