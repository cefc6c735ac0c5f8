package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"
)

func newDev() *cobra.Command {
	o := devOptions{name: "dev"}
	c := &cobra.Command{
		Use:   "dev [flags] [-- FLAGS OF SERVE]",
		Short: "Run a cluster of several nodes on this machine, for development",
		Long: `Run a cluster of several nodes on this machine, for development: each is a process of this binary (varve serve) on ports that are
chosen once. This process serves their metadata from an embedded engine over a unix socket, unless --cluster-file names a FoundationDB; their
objects lie in one directory, unless --storage says otherwise. DIR/nodes.json lists processes and addresses.

Ctrl-C stops all of them cleanly, a second one at once. What follows -- is given to every node:

  varve dev --nodes 3 -- --heartbeat-interval 1s --node-timeout 3s`,
		Args: args(func(c *cobra.Command, given []string) error {
			if len(given) > 0 && c.ArgsLenAtDash() != 0 {
				return fmt.Errorf("argument %q: flags for every node come after --", given[0])
			}
			return nil
		}),
		RunE: func(c *cobra.Command, given []string) error {
			if o.nodes < 1 || o.nodes > maxDevNodes {
				return &usageError{fmt.Errorf("--nodes is %d, want 1 to %d", o.nodes, maxDevNodes)}
			}
			o.serve = given
			return runDev(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&o.nodes, "nodes", 3, "number of nodes")
	f.StringVar(&o.dataDir, "data-dir", fromEnv("data-dir", "./varve-dev"), "directory of everything that the cluster keeps")
	f.StringVar(&o.clusterFile, "cluster-file", "", "FoundationDB cluster file; empty for an embedded engine in this process")
	f.StringVar(&o.storage, "storage", "", "object store of the nodes; empty for a directory in the data directory")
	f.BoolVar(&o.restart, "restart", false, "start nodes again that end by themselves or are killed")
	return c
}

// maxDevNodes keeps a typing error from starting a thousand processes.
const maxDevNodes = 64

func runDev(ctx context.Context, o devOptions, out io.Writer) (err error) {
	d, err := newDevCluster(ctx, o, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	d.greet()
	select {
	case <-ctx.Done():
		d.say("stopping: %v", context.Cause(ctx))
		return nil
	case <-d.ended():
		return errors.New("every node has ended")
	}
}

// greet says where the nodes are and what to try.
func (d *devCluster) greet() {
	for _, n := range d.nodes {
		d.say("node %d: Kafka %s, HTTP %s, admin %s", n.ID, n.Kafka, n.HTTP, n.Admin)
	}
	first := d.nodes[0]
	d.say("try: varve cluster status --data-dir %s", first.DataDir)
	d.say("     varve topic create events --partitions 6 --data-dir %s", first.DataDir)
	d.say("     kill -9 %d   (node %d; see the others take over)", d.nodes[len(d.nodes)-1].PID, len(d.nodes))
}

// prefixer writes whole lines of several writers, each with a prefix.
type prefixer struct {
	mu  *sync.Mutex
	out io.Writer
}

// line is one writer of a prefixer. It keeps what has no line break yet.
type line struct {
	to     prefixer
	prefix string
	rest   []byte
}

// maxLine bounds a line that is kept, bytes.
const maxLine = 64 << 10

func (l *line) Write(b []byte) (int, error) {
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		end := indexLine(l.rest)
		if end == 0 {
			return len(b), nil
		}
		if _, err := fmt.Fprintf(l.to.out, "%s%s\n", l.prefix, trimLine(l.rest[:end])); err != nil {
			return 0, err
		}
		l.rest = l.rest[end:]
	}
}

// indexLine is where the first line of b ends, after its line break; 0 when there is none yet.
func indexLine(b []byte) int {
	for i, c := range b {
		if c == '\n' || i == maxLine {
			return i + 1
		}
	}
	return 0
}

func trimLine(b []byte) []byte {
	if b[len(b)-1] == '\n' {
		return b[:len(b)-1]
	}
	return b
}

// absolute makes a path that processes in other directories understand.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}

// self is the path of this program.
func self() (string, error) {
	binary, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program, to start nodes of it: %w", err)
	}
	return binary, nil
}
