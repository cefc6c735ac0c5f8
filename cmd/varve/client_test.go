package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/ops"
)

// varve runs a command line and gives what it wrote.
func varve(t *testing.T, in io.Reader, args ...string) (string, error) {
	t.Helper()
	root := newRoot(ops.NewBuild("v1", "abc"))
	var out bytes.Buffer
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// What comes from standard input reaches the leader, though it is another node that is asked.
func TestAppendOfStandardInputFollowsTheLeader(t *testing.T) {
	var got string
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read body: %v", err)
		}
		got = string(body)
		w.Header().Set("Stream-Next-Offset", "1")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer leader.Close()
	asked := httptest.NewServer(http.RedirectHandler(leader.URL+"/v1/stream/s", http.StatusTemporaryRedirect))
	defer asked.Close()
	out, err := varve(t, io.MultiReader(strings.NewReader("hello")), "stream", "append", "s", "--content-type", "text/plain", "--http", strings.TrimPrefix(asked.URL, "http://"))
	require.NoError(t, err)
	require.Equal(t, "next offset 1\n", out)
	require.Equal(t, "hello", got)
}

func TestCommandsSayWhatTheyWant(t *testing.T) {
	for line, want := range map[string]string{
		"cluster drain":                        "accepts 1 arg(s), received 0; usage: varve cluster drain NODE",
		"cluster set-slots 1 many":             `slots "many": want a whole number from 0`,
		"dev x":                                `argument "x": flags for every node come after --`,
		"inspect --limit -1":                   "--limit is -1",
		"serve --kafka-listen 127.0.0.1:70000": `kafka-listen is "127.0.0.1:70000", want host:port with a port from 0 to 65535`,
		"serve --storage gs://bucket":          "storage: object store URL: want s3://bucket/prefix",
		"clutser":                              "did you mean cluster?",
	} {
		_, err := varve(t, nil, strings.Fields(line)...)
		var usage *usageError
		require.ErrorAs(t, err, &usage, line)
		require.ErrorContains(t, err, want, line)
	}
}

func TestAListenerThatDoesNotAnswerIsNamed(t *testing.T) {
	for line, want := range map[string]string{
		"cluster status --admin 127.0.0.1:1": "no node serves its admin listener at 127.0.0.1:1 (another: --admin,",
		"stream read s --http 127.0.0.1:1":   "no node serves its http listener at 127.0.0.1:1",
		"topic list --kafka 127.0.0.1:1":     "no node serves its kafka listener at 127.0.0.1:1",
	} {
		_, err := varve(t, nil, strings.Fields(line)...)
		require.ErrorContains(t, err, want)
	}
}

// What a node is configured with serves to inspect it, whatever else the file says.
func TestInspectTakesTheConfigurationOfTheNode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "varve.yaml")
	require.NoError(t, os.WriteFile(file, []byte("data-dir: /nowhere/at/all\nkafka-default-partitions: 3\n"), 0o600))
	_, err := varve(t, nil, "inspect", "--config", file)
	require.ErrorContains(t, err, "there is no metadata in data directory /nowhere/at/all")
	_, err = varve(t, nil, "inspect", "check", "--config", file)
	require.ErrorContains(t, err, "/nowhere/at/all")
}

func TestVersion(t *testing.T) {
	want, err := varve(t, nil, "version")
	require.NoError(t, err)
	got, err := varve(t, nil, "--version")
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Contains(t, got, "varve v1 commit abc go")
}
