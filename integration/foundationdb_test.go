package integration

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/integration/process"
	"github.com/varvedb/varve/layer/fdb/fdbtest"
	"github.com/varvedb/varve/layer/kvtest"
)

// nodeOnFakeFDB gives a node whose client library is the fake one, with a command for it; see layer/fdb/client/testdata.
func nodeOnFakeFDB(t *testing.T, library, command string) *process.Node {
	t.Helper()
	return process.New(t, process.Options{Binary: binary, Embedded: true, // that is, not on the cluster that other tests use
		Args: []string{"--cluster-file", fakeClusterFile(t), "--fdb-library", library}, Env: []string{"FAKE_FDB_COMMAND=" + command, "FAKE_FDB_LATENCY_MICROS=500"}})
}

func fakeClusterFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fdb.cluster")
	require.NoError(t, os.WriteFile(path, []byte("fake:Varve1@127.0.0.1:4500\n"), 0o600))
	return path
}

// TestKillLeaderOnFoundationDB is TestKillLeader over a fake client library whose store the processes share.
func TestKillLeaderOnFoundationDB(t *testing.T) {
	if os.Getenv(kvtest.ClusterFileVariable) != "" {
		t.Skip("TestKillLeader is the same test on the FoundationDB of the environment")
	}
	if !buildHasFDB(t) {
		t.Skip("the binary was built without FoundationDB support; make test builds it with")
	}
	library, err := fdbtest.BuildLibrary(t.TempDir(), "libfdb_c.so")
	if err != nil {
		t.Skipf("no fake client library: %v", err)
	}
	t.Setenv(kvtest.ClusterFileVariable, fdbtest.SharedClusterFile(t))
	t.Setenv(kvtest.LibraryVariable, library)
	killLeaders(t, placements["mixed"])
}

// TestFoundationDBBinary runs the binary on a fake client library: what the process makes of a cluster that answers, and of one that does not.
func TestFoundationDBBinary(t *testing.T) {
	if !buildHasFDB(t) {
		t.Skip("the binary was built without FoundationDB support; make test builds it with")
	}
	library, err := fdbtest.BuildLibrary(t.TempDir(), "libfdb_c.so")
	if err != nil {
		t.Skipf("no fake client library: %v", err)
	}
	t.Run("serves and stops", func(t *testing.T) {
		node := nodeOnFakeFDB(t, library, "lock 0")
		node.Start()
		node.AwaitReady()
		put(t, node, "ours", "kept")
		status, body := get(t, node, "ours")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "kept", body)
		require.Zero(t, node.Stop())
		require.NotContains(t, node.Log(1<<20), "level=WARN")
		require.NotContains(t, node.Log(1<<20), "level=ERROR")
	})
	for name, c := range map[string]struct{ command, says string }{
		"nobody answers":             {"hang grv 1", "no answer within"},
		"its version is not known":   {"connected 0", "no answer within"}, // the multi-version client cannot cancel what waits for that
		"locked":                     {"lock 1", "database_locked"},
		"commits are never answered": {"hang commit 1", "foundationdb opened"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			free, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			admin := free.Addr().String()
			require.NoError(t, free.Close())
			log, err := os.Create(filepath.Join(dir, "log"))
			require.NoError(t, err)
			defer log.Close()
			said := func() string {
				text, err := os.ReadFile(log.Name())
				require.NoError(t, err)
				return string(text)
			}
			cmd := exec.Command(binary, "serve", "--data-dir", filepath.Join(dir, "data"), "--kafka-listen", "127.0.0.1:0", "--http-listen", "", "--admin-listen", admin,
				"--cluster-file", fakeClusterFile(t), "--fdb-library", library)
			cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "FAKE_FDB_COMMAND="+c.command), log, log
			require.NoError(t, cmd.Start())
			defer time.AfterFunc(2*failTime, func() { cmd.Process.Kill() }).Stop()
			require.Eventually(t, func() bool { return strings.Contains(said(), c.says) }, failTime, 5*time.Millisecond, "it does not say %q", c.says)
			require.Eventually(t, func() bool {
				answer, err := http.Get("http://" + admin + "/ready")
				if err != nil {
					return false
				}
				answer.Body.Close()
				return answer.StatusCode == http.StatusServiceUnavailable
			}, failTime, 5*time.Millisecond)
			began := time.Now()
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Wait(), "a process that was asked to stop before it was ready stops cleanly: %s", said())
			require.Less(t, time.Since(began), 5*time.Second)
			t.Log(said())
		})
	}
}
