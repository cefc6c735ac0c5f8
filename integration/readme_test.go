package integration

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/integration/process"
)

// readmeShows is what each command of the README's first screen writes, as it is typed there. A command that is not listed writes nothing.
var readmeShows = map[string]string{
	"kcat -C -e -q -b 127.0.0.1:9092 -t numbers":                               "1\n2\n3\n4\n5\n",
	"curl http://127.0.0.1:4437/v1/stream/rooms/lobby":                         `[{"say":"hello"},{"say":"world"}]`,
	"curl -N 'http://127.0.0.1:4437/v1/stream/rooms/lobby?offset=-1&live=sse'": "event: data\n" + `data:[{"say":"hello"},{"say":"world"}]` + "\nid:00000000000000000002\n\nevent: control\ndata:{",
	"curl http://127.0.0.1:4437/v1/stream/numbers":                             "12345",
	"kcat -C -e -q -b 127.0.0.1:9092 -t rooms/lobby":                           `{"say":"hello"}` + "\n" + `{"say":"world"}` + "\n",
}

// TestReadme types what the README shows, in its order, at a node. The node has other ports, so that the test can run beside another.
func TestReadme(t *testing.T) {
	for _, program := range []string{"bash", "curl", "kcat"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: apt-get install %s", program, program)
		}
	}
	node := process.New(t, process.Options{Binary: binary})
	node.Start()
	node.AwaitReady()
	ports := strings.NewReplacer("127.0.0.1:9092", node.Kafka, "127.0.0.1:4437", node.HTTP, "127.0.0.1:9090", node.Admin)
	shown := map[string]bool{}
	for _, command := range readmeCommands(t) {
		// What follows a stream goes on until it is interrupted, once it has shown what it must.
		follows := strings.HasPrefix(command, "curl -N")
		got := typed(t, ports.Replace(command), follows, readmeShows[command])
		t.Logf("$ %s\n%s", command, got)
		if !follows {
			require.Equal(t, readmeShows[command], got, command)
		}
		shown[command] = true
	}
	for command := range readmeShows {
		require.True(t, shown[command], "the README does not show: %s", command)
	}
}

// readmeCommands are the lines of the README's shell blocks that use a node; those that build and start one are other tests' and the reader's.
func readmeCommands(t *testing.T) (commands []string) {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	inside := false
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case inside && line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "make ") && !strings.HasPrefix(line, "bin/varve "):
			commands = append(commands, line)
		}
	}
	require.NoError(t, lines.Err())
	return commands
}

// typed runs a line in a shell and gives what it wrote. One that follows is interrupted when it has written the text wanted.
func typed(t *testing.T, line string, follows bool, want string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -o pipefail; "+strings.Replace(line, "curl ", "exec curl -sS --fail ", 1))
	var said bytes.Buffer
	cmd.Stderr = &said
	if !follows {
		out, err := cmd.Output()
		require.NoError(t, err, "%s: %s", line, said.String())
		return string(out)
	}
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var out bytes.Buffer
	buffer := make([]byte, 4096)
	for !strings.Contains(out.String(), want) {
		n, err := pipe.Read(buffer)
		out.Write(buffer[:n])
		require.NoError(t, err, "%s: it ended after %q %s, want %q", line, out.String(), said.String(), want)
	}
	cancel()
	_ = cmd.Wait()
	return out.String()
}
