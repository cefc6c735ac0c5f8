// Command varve is a durable stream service: streams by Kafka and HTTP, records in an object store, metadata in FoundationDB or, on one
// machine, in an embedded engine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/ops"
)

// Set by the linker: see the Makefile.
var version, commit string

// Exit codes. A supervisor restarts a fenced node, which then rejoins at a new epoch.
const (
	exitFailed = 1
	exitUsage  = 2
	exitFenced = 3
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go stopOnSignal(cancel)
	root := newRoot(ops.NewBuild(version, commit))
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	// One line, whatever errors were joined on the way.
	fmt.Fprintf(os.Stderr, "varve: %s\n", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, nodes.ErrFenced):
		return exitFenced
	}
	return exitFailed
}

// stopOnSignal ends the context at the first signal and the process at the second.
func stopOnSignal(stop context.CancelCauseFunc) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	stop(fmt.Errorf("signal: %v", <-signals))
	fmt.Fprintf(os.Stderr, "varve: second signal (%v), stopping at once\n", <-signals)
	os.Exit(exitFailed)
}
