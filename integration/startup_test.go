package integration

import (
	"bytes"
	"context"
	"errors"
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
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wiring"
)

// Exit codes of varve.
const (
	exitFailed = 1
	exitUsage  = 2
)

// failTime bounds how long a start that cannot work may take; it is far above what it takes.
const failTime = 20 * time.Second

// start is a command line that cannot work, and what is said of it.
type start struct {
	args []string
	env  []string
	file string // content of a file of the working directory that --config names
	code int
	says []string
	// within is how soon it must have failed; 0 for failTime.
	within time.Duration
}

// refused runs `varve serve` and wants its exit code, and one line on stderr that has what the start says.
func refused(t *testing.T, dir string, s start) {
	t.Helper()
	args := append([]string{"serve", "--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data")}, s.args...)
	if s.file != "" {
		path := filepath.Join(dir, "varve.yaml")
		require.NoError(t, os.WriteFile(path, []byte(s.file), 0o600))
		args = append(args, "--config", path)
	}
	limit := failTime
	if s.within > 0 {
		limit = s.within
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), s.env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "it did not end within %v: %s", limit, said.String())
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	t.Log(strings.TrimSpace(said.String()))
	require.Equal(t, s.code, exit.ExitCode(), said.String())
	require.Empty(t, out.String(), "nothing is served, nothing is greeted")
	require.Equal(t, 1, strings.Count(said.String(), "\n"), "one line: %s", said.String())
	require.True(t, strings.HasPrefix(said.String(), "varve: "), said.String())
	require.Less(t, said.Len(), 600)
	for _, noise := range []string{"fx", "dig", "goroutine", "still starting", ".go:", "context canceled"} {
		require.NotContains(t, said.String(), noise)
	}
	for _, want := range s.says {
		require.Contains(t, said.String(), want)
	}
	// Once: what wraps an error does not say it again.
	for _, want := range s.says {
		require.Equal(t, 1, strings.Count(said.String(), want), "%q is said more than once: %s", want, said.String())
	}
}

// TestStartRefused starts what cannot work: each ends by itself, soon, with one line that says why.
func TestStartRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := closed.Addr().String()
	require.NoError(t, closed.Close())
	keys := []string{"AWS_ACCESS_KEY_ID=" + objectstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + objectstest.SecretKey}
	bucket := objectstest.S3Server(t)
	denied := objectstest.S3Server(t, func(next http.Handler) http.Handler {
		return &objectstest.FaultProxy{Next: next, Choose: objectstest.Always(objectstest.Denied)}
	})

	for name, s := range map[string]start{
		"port in use":       {args: []string{"--kafka-listen", taken.Addr().String()}, code: exitFailed, says: []string{"--kafka-listen", taken.Addr().String(), "another process listens on this port"}, within: 5 * time.Second},
		"foreign address":   {args: []string{"--http-listen", "192.0.2.1:80"}, code: exitFailed, says: []string{"--http-listen", "cannot assign requested address"}},
		"no such port":      {args: []string{"--http-listen", "127.0.0.1:99999"}, code: exitUsage, says: []string{"http-listen", `"127.0.0.1:99999"`, "0 to 65535"}},
		"address":           {args: []string{"--admin-listen", "localhost"}, code: exitUsage, says: []string{"admin-listen", `"localhost"`, "host:port"}},
		"flag":              {args: []string{"--no-such-flag"}, code: exitUsage, says: []string{"--no-such-flag"}},
		"argument":          {args: []string{"extra"}, code: exitUsage, says: []string{`"extra"`}},
		"value":             {args: []string{"--slots", "many"}, code: exitUsage, says: []string{"--slots", "is no whole number"}},
		"duration":          {args: []string{"--lease-ttl", "10"}, code: exitUsage, says: []string{"--lease-ttl", "is no duration"}},
		"environment":       {env: []string{"VARVE_PACK_BYTES=big"}, code: exitUsage, says: []string{"VARVE_PACK_BYTES", `"big"`}},
		"two variables":     {env: []string{"VARVE_PACK_BYTES=big", "VARVE_SLOTS=many"}, code: exitUsage, says: []string{"VARVE_PACK_BYTES", "VARVE_SLOTS"}},
		"configuration key": {file: "slotz: 3\n", code: exitUsage, says: []string{"varve.yaml", `"slotz"`}},
		"configuration":     {file: "slots: [3\n", code: exitUsage, says: []string{"varve.yaml"}},
		"value in a file":   {file: "slots: many\n", code: exitUsage, says: []string{"varve.yaml", "slots", "is no whole number"}},
		"no such file":      {args: []string{"--config", "none.yaml"}, code: exitUsage, says: []string{"configuration file none.yaml"}},
		"node timeout":      {args: []string{"--node-timeout", "5s", "--heartbeat-interval", "5s"}, code: exitUsage, says: []string{"node-timeout is 5s", "heartbeat-interval"}},
		"several at once":   {args: []string{"--slots", "-1", "--node-id", "0", "--wal-fence", "none"}, code: exitUsage, says: []string{"slots is -1", "node-id is 0", `wal-fence is "none"`}},
		"log level":         {args: []string{"--log-level", "loud"}, code: exitUsage, says: []string{`"loud"`}},
		"storage URL":       {args: []string{"--storage", "gs://bucket"}, code: exitUsage, says: []string{"s3://bucket/prefix"}},
		"secret in URL":     {args: []string{"--storage", "s3://key:hunter2@bucket"}, code: exitUsage, says: []string{"credentials do not belong"}},
		"no bucket":         {args: []string{"--storage", strings.Replace(bucket, objectstest.Bucket, "no-such-bucket", 1)}, env: keys, code: exitFailed, says: []string{"--storage", "s3://no-such-bucket", "NoSuchBucket"}},
		"credentials":       {args: []string{"--storage", denied}, env: keys, code: exitFailed, says: []string{"--storage", "AccessDenied"}},
		"no credentials": {
			args: []string{"--storage", bucket}, code: exitFailed, says: []string{"--storage", "no AWS credentials", "AWS_ACCESS_KEY_ID"},
			env: []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_PROFILE=", "AWS_CONFIG_FILE=none", "AWS_SHARED_CREDENTIALS_FILE=none", "AWS_EC2_METADATA_DISABLED=true"},
		},
		"nobody answers": {args: []string{"--storage", "s3://bucket?endpoint=http://" + nobody}, env: keys, code: exitFailed, says: []string{"--storage", "connection refused"}},
	} {
		t.Run(name, func(t *testing.T) { refused(t, t.TempDir(), s) })
	}
}

// TestStartRefusedByTheDataDirectory covers what can be wrong with the directory.
func TestStartRefusedByTheDataDirectory(t *testing.T) {
	t.Run("a file", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o600))
		refused(t, dir, start{code: exitFailed, says: []string{"data directory " + filepath.Join(dir, "data") + ":", "not a directory"}})
	})
	t.Run("not to be made", func(t *testing.T) {
		refused(t, t.TempDir(), start{args: []string{"--data-dir", "/proc/varve"}, code: exitFailed, says: []string{"data directory /proc/varve:"}})
	})
	t.Run("not writable", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root writes everywhere; run the tests as another user")
		}
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o500))
		refused(t, dir, start{code: exitFailed, says: []string{"permission denied"}})
	})
	t.Run("objects are a file", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "objects"), nil, 0o600))
		refused(t, dir, start{code: exitFailed, says: []string{"object store directory", "not a directory"}})
	})
	t.Run("in use", func(t *testing.T) {
		node := process.New(t, process.Options{Binary: binary, Embedded: true})
		node.Start()
		node.AwaitReady()
		refused(t, t.TempDir(), start{args: []string{"--data-dir", node.DataDir()}, code: exitFailed, says: []string{"data directory " + node.DataDir() + ": directory is in use by another process"}, within: 5 * time.Second})
	})
	t.Run("of a newer format", func(t *testing.T) {
		dir := t.TempDir()
		config := wiring.DefaultConfig()
		config.Process.DataDir = filepath.Join(dir, "data")
		database(t, config, func(tr kv.Transaction) {
			tr.Set(tuple.Tuple{"varve", config.Process.Cluster, "format"}.Pack(), []byte(`{"version":99}`))
		})
		refused(t, dir, start{code: exitFailed, says: []string{"has format 99", "run the version that wrote it, or a newer one"}})
	})
}

// TestStartRefusedByFoundationDB gives cluster files and libraries that are not there, to binaries with and without support for it.
func TestStartRefusedByFoundationDB(t *testing.T) {
	file := func(t *testing.T, content string) string {
		path := filepath.Join(t.TempDir(), "fdb.cluster")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	const good = "test:test@127.0.0.1:4500\n"
	for name, s := range map[string]start{
		"no library":        {args: []string{"--cluster-file", file(t, good), "--fdb-library", "/nowhere/libfdb_c.so"}, says: []string{"install foundationdb-clients 7.3 or newer", "/nowhere/libfdb_c.so"}},
		"not a library":     {args: []string{"--cluster-file", file(t, good), "--fdb-library", file(t, "text")}, says: []string{"install foundationdb-clients 7.3 or newer"}},
		"no cluster file":   {args: []string{"--cluster-file", "/nowhere/fdb.cluster"}, says: []string{"cluster file /nowhere/fdb.cluster does not exist"}},
		"malformed":         {args: []string{"--cluster-file", file(t, "test@127.0.0.1\n")}, says: []string{"cluster file", "want description:id"}},
		"empty file":        {args: []string{"--cluster-file", file(t, "")}, says: []string{"cluster file", "no connection string"}},
		"missing TLS files": {args: []string{"--cluster-file", file(t, good), "--fdb-tls-ca", "/nowhere/ca.pem"}, code: exitUsage, says: []string{"TLS CA", "/nowhere/ca.pem"}},
	} {
		t.Run(name, func(t *testing.T) {
			if s.code == 0 {
				s.code = exitFailed
				if !buildHasFDB(t) {
					s.says = []string{"this binary was built without FoundationDB support; build with make"}
				}
			}
			s.within = 5 * time.Second // far above the second that is promised, for slow machines
			began := time.Now()
			refused(t, t.TempDir(), s)
			t.Log("took", time.Since(began))
		})
	}
}

// buildHasFDB asks the binary, which may be another than this test was built with.
func buildHasFDB(t *testing.T) bool {
	out, err := exec.Command(binary, "serve", "--data-dir", t.TempDir(), "--kafka-listen", "127.0.0.1:0", "--http-listen", "", "--admin-listen", "", "--cluster-file", "/nowhere").CombinedOutput()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit))
	return !strings.Contains(string(out), "without FoundationDB")
}

// TestMistakesInCommands: a command that is not there, or is given what it does not take, ends with 2 and one line.
func TestMistakesInCommands(t *testing.T) {
	for _, args := range [][]string{{"serv"}, {"stream", "foo"}, {"stream", "read"}, {"version", "x"}, {"inspect", "--limit", "x"}} {
		out, err := exec.Command(binary, args...).CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%v", args)
		require.Equal(t, exitUsage, exit.ExitCode(), "%v: %s", args, out)
		require.Equal(t, 1, strings.Count(string(out), "\n"), "%v: %s", args, out)
		t.Log(strings.TrimSpace(string(out)))
	}
}

// TestStop: the first signal stops cleanly, the second at once.
func TestStop(t *testing.T) {
	t.Run("clean", func(t *testing.T) {
		node := process.New(t, process.Options{Binary: binary})
		node.Start()
		node.AwaitReady()
		require.Zero(t, node.Stop())
		require.NotContains(t, node.Log(1<<20), "level=WARN")
		require.NotContains(t, node.Log(1<<20), "level=ERROR")
	})
	t.Run("twice", func(t *testing.T) {
		node := process.New(t, process.Options{Binary: binary, Args: []string{"--shutdown-drain", "10m"}})
		node.Start()
		node.AwaitReady()
		node.Signal(syscall.SIGTERM)
		require.Eventually(t, func() bool { return strings.Contains(node.Log(1<<20), "node drains") }, 10*time.Second, 5*time.Millisecond)
		began := time.Now()
		require.Equal(t, exitFailed, node.Stop())
		require.Less(t, time.Since(began), 5*time.Second)
		require.Contains(t, node.Log(1<<20), "second signal")
	})
	t.Run("while it waits for the metadata", func(t *testing.T) {
		dir := t.TempDir()
		var said bytes.Buffer
		cmd := exec.Command(binary, "serve", "--data-dir", dir, "--kafka-listen", "127.0.0.1:0", "--http-listen", "", "--admin-listen", "127.0.0.1:0",
			"--metadata-socket", filepath.Join(dir, "none"), "--storage", "file://"+filepath.Join(dir, "objects"))
		reader, writer, err := os.Pipe()
		require.NoError(t, err)
		defer reader.Close()
		cmd.Stderr = writer
		require.NoError(t, cmd.Start())
		writer.Close()
		buffer := make([]byte, 4096)
		defer time.AfterFunc(failTime, func() { cmd.Process.Kill() }).Stop()
		for !strings.Contains(said.String(), "metadata is not available") {
			n, err := reader.Read(buffer)
			require.NoError(t, err, "it ended without saying that the metadata is not available: %s", said.String())
			said.Write(buffer[:n])
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait(), "a process that was asked to stop before it was ready stops cleanly")
	})
}

// TestSameNodeTwice: the process that registers an id last has it; the one before ends, and its code says that it may be started again.
func TestSameNodeTwice(t *testing.T) {
	cluster := process.NewCluster(t, 2, process.Options{Binary: binary, Args: []string{"--node-id", "1", "--heartbeat-interval", "500ms", "--node-timeout", "10s"}})
	first, second := cluster.Nodes[0], cluster.Nodes[1]
	first.Start()
	first.AwaitReady()
	put(t, first, "ours", "kept")
	second.Start()
	require.Equal(t, exitFenced, first.ExitCode())
	lines := strings.Split(strings.TrimSpace(first.Log(4000)), "\n")
	last := lines[len(lines)-1]
	t.Log(last)
	require.True(t, strings.HasPrefix(last, "varve: "), "the last line says why: %s", last)
	require.Contains(t, last, "fenced")
	second.AwaitReady()
	status, body := get(t, second, "ours")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "kept", body)
}
