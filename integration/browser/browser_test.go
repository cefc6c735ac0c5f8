// Package browser lets a page of another origin use streams in a real browser. `make test-browser` runs it.
package browser

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	_ "embed"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/integration/process"
)

//go:embed page.html
var page []byte

// variable names the browser, chromium or one that takes its flags.
const variable = "VARVE_TEST_BROWSER"

// result is one thing that the page checked.
type result struct {
	What string
	OK   bool
	Got  string
}

func TestPageOfAnotherOrigin(t *testing.T) {
	program := os.Getenv(variable)
	if program == "" {
		t.Skip(variable + " is not set; run: make test-browser")
	}
	binary, err := process.Build(t.TempDir())
	require.NoError(t, err)
	node := process.New(t, process.Options{Binary: binary, Args: []string{"--http-sse-lifetime", "2s"}})
	node.Start()
	node.AwaitReady()

	told := make(chan []result, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
	mux.HandleFunc("POST /results", func(_ http.ResponseWriter, r *http.Request) {
		var results []result
		if json.NewDecoder(r.Body).Decode(&results) == nil {
			told <- results
		}
	})
	site := httptest.NewServer(mux)
	defer site.Close()

	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--user-data-dir="+t.TempDir(),
		"--remote-debugging-port=0", site.URL+"/?streams=http://"+node.HTTP)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	select {
	case results := <-told:
		require.Greater(t, len(results), 15)
		for _, r := range results {
			t.Logf("%v %s: %s", r.OK, r.What, r.Got)
			if !r.OK {
				t.Errorf("%s: %s", r.What, r.Got)
			}
		}
	case <-time.After(90 * time.Second):
		t.Fatal("the page told nothing for 90 s")
	}
}
