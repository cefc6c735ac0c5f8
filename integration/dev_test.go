package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eventually waits until done is true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, drainTime, 20*time.Millisecond, what)
}

// varve dev starts nodes, starts one again that was killed, and stops all of them at Ctrl-C.
func TestDev(t *testing.T) {
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "dev.log"))
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.Command(binary, "dev", "--nodes", "2", "--restart", "--data-dir", filepath.Join(dir, "dev"), "--", "--heartbeat-interval", "500ms", "--node-timeout", "3s")
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	stopped := make(chan error, 1)
	go func() { stopped <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Process.Kill()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s", text)
		}
	})
	type node struct {
		PID   int
		Kafka string
		Admin string
	}
	nodes := func() (all []node) {
		text, err := os.ReadFile(filepath.Join(dir, "dev", "nodes.json"))
		if err != nil {
			return nil
		}
		require.NoError(t, json.Unmarshal(text, &all))
		return all
	}
	eventually(t, "nodes.json lists two nodes", func() bool { return len(nodes()) == 2 })
	before := nodes()
	out, err := exec.Command(binary, "topic", "create", "a", "--kafka", before[1].Kafka).CombinedOutput()
	require.NoError(t, err, "%s", out)

	out, err = exec.Command(binary, "inspect", "check", "--data-dir", filepath.Join(dir, "dev", "node-1")).CombinedOutput()
	require.NoError(t, err, "%s", out)

	require.NoError(t, syscall.Kill(before[0].PID, syscall.SIGKILL))
	eventually(t, "node 1 is back", func() bool { return nodes()[0].PID != before[0].PID && nodes()[0].PID != 0 })
	after := nodes()
	require.Equal(t, before[0].Kafka, after[0].Kafka, "ports are kept")
	require.Equal(t, before[1], after[1])

	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	select {
	case err := <-stopped:
		require.NoError(t, err)
	case <-time.After(drainTime):
		t.Fatal("dev does not stop")
	}
	for _, n := range after {
		require.ErrorIs(t, syscall.Kill(n.PID, 0), syscall.ESRCH, "a node outlives dev")
	}
	text, err := os.ReadFile(log.Name())
	require.NoError(t, err)
	require.Contains(t, string(text), "node 2 has ended: exit status 0")
}

// varve demo kills a leader and finds nothing amiss.
func TestDemo(t *testing.T) {
	out, err := exec.Command(binary, "demo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASSED")
	t.Logf("%s", out)
}
