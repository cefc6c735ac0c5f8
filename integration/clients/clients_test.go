// Package clients runs clients of other languages against the binary. `make test-clients` installs them and runs it.
package clients

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/integration/process"
)

// variable names the directory that the clients are installed in.
const variable = "VARVE_TEST_CLIENTS"

// start runs a node, or skips the test when the clients are not installed.
func start(t *testing.T) (node *process.Node, installed string) {
	t.Helper()
	installed = os.Getenv(variable)
	if installed == "" {
		t.Skip(variable + " is not set; run: make test-clients")
	}
	binary, err := process.Build(t.TempDir())
	require.NoError(t, err)
	node = process.New(t, process.Options{Binary: binary})
	node.Start()
	node.AwaitReady()
	return node, installed
}

// run runs a client, which ends with 0 when all was as it expects.
func run(t *testing.T, env []string, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
}

func TestConfluentKafka(t *testing.T) {
	node, installed := start(t)
	r, err := http.NewRequest(http.MethodPut, "http://"+node.HTTP+"/v1/stream/made/over/http", strings.NewReader(`[{"n":1},{"n":2}]`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, http.StatusCreated, answer.StatusCode)
	run(t, nil, filepath.Join(installed, "python", "bin", "python"), "confluent.py", node.Kafka)
}

func TestKafkaPython(t *testing.T) {
	node, installed := start(t)
	run(t, nil, filepath.Join(installed, "python", "bin", "python"), "kafkapython.py", node.Kafka)
}

func TestKafkaJS(t *testing.T) {
	node, installed := start(t)
	run(t, []string{"KAFKAJS=" + filepath.Join(installed, "node", "node_modules", "kafkajs")}, "node", "kafkajs.js", node.Kafka)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(node.Kafka), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"kafkajs": {1: kgo.NewOffset().AtStart()}}))
	require.NoError(t, err)
	defer client.Close()
	var got int
	for got < 400 {
		fetched := client.PollFetches(ctx)
		require.NoError(t, errors.Join(ctx.Err(), fetched.Err()))
		fetched.EachRecord(func(r *kgo.Record) {
			require.Equal(t, fmt.Sprintf("value %d", got%100), string(r.Value))
			require.Equal(t, "k", string(r.Key))
			require.Equal(t, int64(got), r.Offset)
			got++
		})
	}
}
