// Package process runs the real binary for tests: it starts, kills, stops and restarts nodes and knows their addresses.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/varvedb/varve/wiring"
)

// Timeouts are generous: machines are slow under load, and no test passes because of them.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
)

// LogsVariable names a directory that gets the whole logs of the nodes of tests that fail, goroutines included.
const LogsVariable = "VARVE_TEST_LOGS"

// Options of a node.
type Options struct {
	Binary  string   // see Build
	Storage string   // --storage; empty for a directory
	Args    []string // more flags
	Env     []string // more environment, NAME=value
	// Embedded keeps the metadata in the embedded engine, whatever kvtest's variables say: for tests of that engine, and for
	// those that need a proxy before it.
	Embedded bool

	id       int64    // of a node of a cluster
	metadata []string // the flags that say where the metadata is, when it is not in the data directory
}

// Node is a process that serves a data directory, and can be started again on the same addresses.
type Node struct {
	wiring.Addresses
	Dir string

	t       testing.TB
	options Options
	log     string

	mu     sync.Mutex // guards what follows
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of the process; set before exited is closed
}

// New makes a node that is not running.
func New(t testing.TB, options Options) *Node {
	t.Helper()
	options.metadata = metadata(t, options)
	options.Args = append(options.Args, options.metadata...)
	return newNode(t, options)
}

func newNode(t testing.TB, options Options) *Node {
	t.Helper()
	n := &Node{t: t, options: options, Dir: t.TempDir()}
	n.log = filepath.Join(n.Dir, "varve.log")
	t.Cleanup(func() {
		if t.Failed() {
			n.dump()
		}
		n.Kill()
		if t.Failed() {
			t.Logf("log of the node, its end:\n%s", n.Log(20_000))
		}
	})
	return n
}

// Start starts the process and returns when it has said what it listens on, not yet when it is ready.
func (n *Node) Start() {
	n.t.Helper()
	data := filepath.Join(n.Dir, "data")
	args := []string{"serve", "--data-dir", data, "--kafka-listen", or(n.Kafka), "--http-listen", or(n.HTTP), "--admin-listen", or(n.Admin)}
	if n.options.Storage != "" {
		args = append(args, "--storage", n.options.Storage)
	}
	cmd := exec.Command(n.options.Binary, append(args, n.options.Args...)...)
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	n.check(err)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), n.options.Env...)
	os.Remove(filepath.Join(data, "listeners.json"))
	n.check(cmd.Start())
	log.Close()
	exited := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.exited, n.err = cmd, exited, nil
	n.mu.Unlock()
	go func() {
		err := cmd.Wait()
		n.mu.Lock()
		n.err = err
		n.mu.Unlock()
		close(exited)
	}()
	n.awaitListeners(data, cmd.Process.Pid, exited)
}

// dump makes a process that runs write what its goroutines do to its log, which ends it, and keeps the log in the directory that LogsVariable names.
func (n *Node) dump() {
	if n.Running() {
		n.Signal(syscall.SIGCONT)
		n.Signal(syscall.SIGQUIT)
		select {
		case <-n.Exited():
		case <-time.After(5 * time.Second):
		}
	}
	if dir := os.Getenv(LogsVariable); dir != "" {
		if body, err := os.ReadFile(n.log); err == nil {
			_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.log", strings.ReplaceAll(n.t.Name(), "/", "-"), n.ID())), body, 0o600)
		}
	}
}

func or(address string) string {
	if address == "" {
		return "127.0.0.1:0"
	}
	return address
}

func (n *Node) awaitListeners(data string, pid int, exited <-chan struct{}) {
	n.t.Helper()
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) {
		if a, err := wiring.ReadAddresses(data); err == nil && a.PID == pid {
			n.Addresses = a
			return
		}
		select {
		case <-exited:
			n.t.Fatalf("the node ended at its start: %v\n%s", n.err, n.Log(4000))
		case <-time.After(5 * time.Millisecond):
		}
	}
	n.t.Fatalf("the node said nothing of its listeners for %v\n%s", startTimeout, n.Log(4000))
}

// AwaitReady returns when /ready says so.
func (n *Node) AwaitReady() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Admin+"/ready", nil)
		n.check(err)
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-n.Exited():
			n.t.Fatalf("the node ended before it was ready: %v\n%s", n.err, n.Log(4000))
		case <-ctx.Done():
			n.t.Fatalf("the node is not ready after %v: %v\n%s", startTimeout, err, n.Log(4000))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ID is the node's id in its cluster.
func (n *Node) ID() int64 { return n.options.id }

// Exited is closed when the process has ended.
func (n *Node) Exited() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.exited
}

// Running tells whether the process was started and has not ended.
func (n *Node) Running() bool {
	exited := n.Exited()
	if exited == nil {
		return false
	}
	select {
	case <-exited:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process.
func (n *Node) Signal(s syscall.Signal) {
	n.t.Helper()
	n.mu.Lock()
	cmd := n.cmd
	n.mu.Unlock()
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.t.Fatalf("signal %v: %v", s, err)
	}
}

// Pause stops the process by SIGSTOP, and waits until none of its threads runs any more: a busy machine lets them go on for a while.
func (n *Node) Pause() {
	n.t.Helper()
	n.Signal(syscall.SIGSTOP)
	n.mu.Lock()
	pid := n.cmd.Process.Pid
	n.mu.Unlock()
	for deadline := time.Now().Add(stopTimeout); n.Running() && !paused(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("process %d still runs %v after SIGSTOP", pid, stopTimeout)
		}
	}
}

// paused tells whether all threads of a process are stopped, where /proc says so; elsewhere it is always true.
func paused(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false // the pattern is well-formed
	}
	for _, t := range threads {
		stat, err := os.ReadFile(t)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state …, where the name may hold anything (proc_pid_stat(5)).
		if end := bytes.LastIndexByte(stat, ')'); end < 0 || !bytes.HasPrefix(stat[end+1:], []byte(" T")) {
			return false
		}
	}
	return true
}

// Kill ends the process with SIGKILL, if it runs.
func (n *Node) Kill() {
	n.mu.Lock()
	cmd, exited := n.cmd, n.exited
	n.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-exited
}

// Stop asks the process to stop and gives its exit code.
func (n *Node) Stop() int {
	n.t.Helper()
	n.Signal(syscall.SIGTERM)
	return n.ExitCode()
}

// ExitCode waits for the process to end and gives its exit code, -1 for one that a signal ended.
func (n *Node) ExitCode() int {
	n.t.Helper()
	select {
	case <-n.Exited():
	case <-time.After(stopTimeout):
		n.t.Fatalf("the node did not end within %v\n%s", stopTimeout, n.Log(4000))
	}
	return n.cmd.ProcessState.ExitCode()
}

// Varve runs a command of the binary and gives what it wrote.
func (n *Node) Varve(args ...string) (string, error) {
	var out, failed bytes.Buffer
	cmd := exec.Command(n.options.Binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("varve %s: %w: %s", strings.Join(args, " "), err, failed.String())
	}
	return out.String(), nil
}

// Inspect runs `varve inspect` on the metadata of the node, which need not run, and gives what it wrote.
func (n *Node) Inspect(args ...string) (string, error) {
	return n.Varve(append(append([]string{"inspect"}, args...), append([]string{"--data-dir", n.DataDir()}, n.options.metadata...)...)...)
}

// DataDir is what the process has as --data-dir.
func (n *Node) DataDir() string { return filepath.Join(n.Dir, "data") }

// Log gives the end of what the processes of this node logged.
func (n *Node) Log(most int) string {
	body, err := os.ReadFile(n.log)
	if err != nil {
		return err.Error()
	}
	if len(body) > most {
		body = body[len(body)-most:]
	}
	return string(body)
}

// RSS is the resident memory of the process, bytes.
func (n *Node) RSS() int64 {
	n.t.Helper()
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID))
	n.check(err)
	for line := range strings.SplitSeq(string(body), "\n") {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	n.t.Fatal("no VmRSS in the status of the process")
	return 0
}

func (n *Node) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}
