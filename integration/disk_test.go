package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/integration/process"
)

// TestDiskFull takes the disk away from the embedded engine: the process ends rather than live on without it, and once there is room it has every record that was
// acknowledged. The disk is full by a limit on the size of files, which the engine's log meets first.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	limit, wrapper := filepath.Join(dir, "limit"), filepath.Join(dir, "varve")
	require.NoError(t, os.WriteFile(limit, []byte("2048"), 0o600)) // KiB
	require.NoError(t, os.WriteFile(wrapper, []byte(fmt.Sprintf("#!/usr/bin/env bash\nulimit -f $(cat %q)\nexec %q \"$@\"\n", limit, binary)), 0o700))
	node := process.New(t, process.Options{Binary: wrapper, Embedded: true, Args: []string{"--wal-inline-max", "512KiB", "--wal-inline-budget", "64MiB", "--pack-interval", "1h"}})
	node.Start()
	node.AwaitReady()
	address := streamAddress(node, "ledger")
	put(t, node, "ledger", "")
	client := &http.Client{Timeout: 5 * time.Second}
	line := strings.Repeat("x", 50_000)
	var acknowledged int
	for ; acknowledged < 1000; acknowledged++ {
		answer, err := client.Post(address, "text/plain", strings.NewReader(fmt.Sprintf("%06d%s\n", acknowledged, line)))
		if err != nil {
			break
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusNoContent {
			break
		}
	}
	require.Greater(t, acknowledged, 5)
	require.Equal(t, exitFailed, node.ExitCode(), "what cannot write ends by itself")
	require.Contains(t, node.Log(4000), "varve: the metadata cannot be written")
	t.Log(node.Log(600))

	require.NoError(t, os.WriteFile(limit, []byte("unlimited"), 0o600))
	node.Start()
	node.AwaitReady()
	for n := range acknowledged {
		answer, err := client.Get(fmt.Sprintf("%s?offset=%d", address, n))
		require.NoError(t, err)
		head := make([]byte, 6)
		_, err = answer.Body.Read(head)
		answer.Body.Close()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%06d", n), string(head))
	}
}
