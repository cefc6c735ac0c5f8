package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/embedded/remote"
	"github.com/varvedb/varve/wiring"
)

// devOptions is what a cluster of development is told.
type devOptions struct {
	nodes                         int
	dataDir, clusterFile, storage string
	restart                       bool
	quiet                         bool     // the nodes' own lines go only to their log files, and warnings nowhere
	name                          string   // begins every line of this process
	serve                         []string // more flags for every node
}

// Timeouts of a cluster of development.
const (
	devStartTimeout = 60 * time.Second
	devStopTimeout  = 45 * time.Second // more than nodes take by their own limits
	devRestartPause = time.Second
)

// devCluster is nodes of this binary, and what they share.
type devCluster struct {
	options  devOptions
	binary   string
	shared   []string // flags of every node
	printer  prefixer
	nodes    []*devNode
	life     context.Context // until the cluster stops
	endLife  context.CancelFunc
	alive    sync.WaitGroup // goroutines: one a node, and one a restart
	allEnded chan struct{}
	metadata func() error // stops what serves the metadata
	file     sync.Mutex   // held while nodes.json is written
}

// devNode is one node, as nodes.json tells of it.
type devNode struct {
	ID int64 `json:"id"`
	wiring.Addresses
	DataDir string `json:"data_dir"`
	Log     string `json:"log"`

	mu      sync.Mutex // guards what follows and Addresses
	process *os.Process
}

// newDevCluster prepares a cluster: directories and metadata, no node yet.
func newDevCluster(ctx context.Context, o devOptions, out io.Writer) (*devCluster, error) {
	d := &devCluster{options: o, printer: prefixer{mu: &sync.Mutex{}, out: out}, allEnded: make(chan struct{}), metadata: func() error { return nil }}
	d.life, d.endLife = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if d.binary, err = self(); err != nil {
		return nil, err
	}
	if d.options.dataDir, err = absolute(o.dataDir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.options.dataDir, 0o755); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	storage := o.storage
	if storage == "" {
		storage = "file://" + filepath.ToSlash(filepath.Join(d.options.dataDir, "objects"))
	}
	d.shared = []string{"--storage", storage}
	for id := 1; id <= o.nodes; id++ {
		dir := filepath.Join(d.options.dataDir, fmt.Sprint("node-", id))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("data directory of node %d: %w", id, err)
		}
		n := &devNode{ID: int64(id), DataDir: dir, Log: filepath.Join(dir, "varve.log")}
		n.Addresses, _ = wiring.ReadAddresses(dir) // the ports of the last time, if there was one
		n.PID = 0
		d.nodes = append(d.nodes, n)
	}
	if o.clusterFile != "" {
		path, err := absolute(o.clusterFile)
		if err != nil {
			return nil, err
		}
		name, err := devClusterName(d.options.dataDir)
		if err != nil {
			return nil, err
		}
		d.shared = append(d.shared, "--cluster-file", path, "--cluster", name)
		d.say("cluster %s on FoundationDB (another: -- --cluster NAME)", name)
		return d, nil
	}
	if err := d.serveMetadata(ctx); err != nil {
		return nil, err
	}
	d.leaveTakenPorts() // only now: who has the metadata has the nodes, so that it is no node of this cluster that listens there
	return d, nil
}

// devClusterName is the name of the cluster of a data directory. It is random, and kept there: nodes of development that shared a FoundationDB and a name with
// others would fence them, since all are numbered from 1.
func devClusterName(dataDir string) (string, error) {
	path := filepath.Join(dataDir, "cluster-name")
	kept, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(kept)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("name of the cluster: %w", err)
	}
	name := "dev-" + strings.ToLower(rand.Text()[:10])
	if err := os.WriteFile(path, []byte(name+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("name of the cluster: %w", err)
	}
	return name, nil
}

// leaveTakenPorts lets nodes choose other ports in place of those that another process has by now.
func (d *devCluster) leaveTakenPorts() {
	for _, n := range d.nodes {
		for _, address := range []*string{&n.Kafka, &n.HTTP, &n.Admin} {
			if taken(*address) {
				d.say("node %d: %s is in use by now, another port is chosen", n.ID, *address)
				*address = ""
			}
		}
	}
}

// taken tells whether another process listens on an address.
func taken(address string) bool {
	if address == "" {
		return false
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return true
	}
	l.Close()
	return false
}

// serveMetadata opens the embedded engine and lends it to the nodes until d.metadata is called.
func (d *devCluster) serveMetadata(ctx context.Context) error {
	level := slog.LevelWarn
	if d.options.quiet {
		level = slog.LevelError
	}
	logger := slog.New(slog.NewTextHandler(&line{to: d.printer, prefix: d.prefix()}, &slog.HandlerOptions{Level: level}))
	engine, err := embedded.Open(wiring.MetadataDir(d.options.dataDir), embedded.Options{Logger: logger})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "varve-dev") // not in the data directory, whose path may be too long for a socket
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	socket := filepath.Join(dir, "metadata")
	l, err := remote.Listen(socket)
	if err != nil {
		return errors.Join(err, engine.Close(), os.RemoveAll(dir))
	}
	// It outlives ctx, whose end begins the stop of the nodes.
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- remote.Serve(serving, l, engine, logger) }()
	d.metadata = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-served, engine.Close(), os.RemoveAll(dir))
	})
	d.shared = append(d.shared, "--metadata-socket", socket)
	return nil
}

func (d *devCluster) say(format string, args ...any) {
	d.printer.mu.Lock()
	defer d.printer.mu.Unlock()
	fmt.Fprintf(d.printer.out, d.prefix()+format+"\n", args...)
}

func (d *devCluster) prefix() string { return fmt.Sprintf("%-7s| ", d.options.name) }

// start starts every node and returns when all are ready.
func (d *devCluster) start(ctx context.Context) error {
	for _, n := range d.nodes {
		first := make(chan error, 1)
		d.alive.Go(func() { d.supervise(n, first) })
		if err := <-first; err != nil {
			return err
		}
	}
	go func() {
		d.alive.Wait()
		close(d.allEnded)
	}()
	for _, n := range d.nodes {
		if err := d.awaitReady(ctx, n); err != nil {
			return err
		}
	}
	return d.writeNodes()
}

// ended is closed when no node runs any more and none will.
func (d *devCluster) ended() <-chan struct{} { return d.allEnded }

// supervise runs a node until it ends, and again if nodes are to be started again. first gets the outcome of the first start.
func (d *devCluster) supervise(n *devNode, first chan<- error) {
	// Where the parent's death is a signal to the child it is the death of the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		cmd, log, err := d.launch(n)
		switch {
		case first != nil:
			first <- err
			first = nil
		case err == nil:
			d.alive.Go(func() { d.noteRestart(n) })
		}
		if err != nil {
			d.say("node %d: %v", n.ID, err)
			return
		}
		_ = cmd.Wait()
		log.Close()
		n.mu.Lock()
		n.process, n.PID = nil, 0
		n.mu.Unlock()
		d.say("node %d has ended: %v", n.ID, cmd.ProcessState)
		if !d.options.restart {
			return
		}
		select {
		case <-d.life.Done():
			return
		case <-time.After(devRestartPause):
		}
	}
}

// noteRestart brings nodes.json up to date when a node is back.
func (d *devCluster) noteRestart(n *devNode) {
	err := d.awaitReady(d.life, n)
	if err == nil {
		err = d.writeNodes()
	}
	if err != nil && d.life.Err() == nil {
		d.say("node %d: %v", n.ID, err)
	}
}

// launch starts the process of a node, unless the cluster stops.
func (d *devCluster) launch(n *devNode) (*exec.Cmd, io.Closer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.life.Err() != nil {
		return nil, nil, errors.New("not started: the cluster stops")
	}
	log, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	args := append([]string{"serve", "--node-id", strconv.FormatInt(n.ID, 10), "--data-dir", n.DataDir,
		"--kafka-listen", orAny(n.Kafka), "--http-listen", orAny(n.HTTP), "--admin-listen", orAny(n.Admin)}, d.shared...)
	cmd := exec.Command(d.binary, append(args, d.options.serve...)...)
	cmd.SysProcAttr = devProcess()
	var out io.Writer = log
	if !d.options.quiet {
		out = io.MultiWriter(log, &line{to: d.printer, prefix: fmt.Sprintf("node %-2d| ", n.ID)})
	}
	cmd.Stdout, cmd.Stderr = out, out
	os.Remove(filepath.Join(n.DataDir, "listeners.json"))
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	n.process, n.PID = cmd.Process, cmd.Process.Pid
	return cmd, log, nil
}

func orAny(address string) string {
	if address == "" {
		return "127.0.0.1:0"
	}
	return address
}

// awaitReady waits until a node answers that it is ready, and notes where it listens.
func (d *devCluster) awaitReady(ctx context.Context, n *devNode) error {
	ctx, cancel := context.WithTimeout(ctx, devStartTimeout)
	defer cancel()
	for {
		n.mu.Lock()
		pid := n.PID
		if a, err := wiring.ReadAddresses(n.DataDir); err == nil && a.PID == pid {
			n.Addresses = a
		}
		admin := n.Admin
		n.mu.Unlock()
		if pid == 0 {
			return fmt.Errorf("node %d ended before it was ready; its log is %s", n.ID, n.Log)
		}
		if ready(ctx, admin) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %d is not ready: %w; its log is %s", n.ID, ctx.Err(), n.Log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ready(ctx context.Context, admin string) bool {
	if admin == "" {
		return false
	}
	answer, err := call(ctx, http.MethodGet, "http://"+admin+"/ready", nil, nil)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return true
}

// writeNodes writes DIR/nodes.json, whole at any time.
func (d *devCluster) writeNodes() error {
	d.file.Lock()
	defer d.file.Unlock()
	for _, n := range d.nodes {
		n.mu.Lock()
		defer n.mu.Unlock()
	}
	body, err := json.MarshalIndent(d.nodes, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(d.options.dataDir, "nodes.json")
	if err := os.WriteFile(path+".tmp", append(body, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the list of nodes: %w", err)
	}
	return os.Rename(path+".tmp", path)
}

// signal sends a signal to a node, if it runs.
func (n *devNode) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		_ = n.process.Signal(s) // one that has just ended needs none
	}
}

// stop stops the nodes together, then the metadata. Nodes that do not end in time are killed.
func (d *devCluster) stop() error {
	d.endLife()
	for _, n := range d.nodes {
		n.signal(syscall.SIGTERM)
	}
	killing := time.AfterFunc(devStopTimeout, func() {
		for _, n := range d.nodes {
			n.signal(syscall.SIGKILL)
		}
	})
	defer killing.Stop()
	d.alive.Wait()
	return d.metadata()
}
