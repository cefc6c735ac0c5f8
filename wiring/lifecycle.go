package wiring

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/varvedb/varve/http/admin"
	"github.com/varvedb/varve/http/streams"
	"github.com/varvedb/varve/kafka"
	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/ops"
	"github.com/varvedb/varve/wal/objects"
)

// closeTimeout bounds what a stop does after the streams are closed: stores and listeners have nothing to wait for then.
const closeTimeout = 10 * time.Second

// process is a running varve, as far as starting and stopping it goes.
type process struct {
	fx.In

	Config   Config
	Build    ops.Build
	Logger   *slog.Logger
	Sockets  *listeners
	Database kv.Database
	Objects  objects.Store
	Layer    *layer.Store
	Node     *nodes.Node
	Kafka    *kafka.Server
	HTTP     *streams.Server
	Admin    *admin.Server
}

// server is a listener's protocol.
type server interface {
	Shutdown(ctx context.Context) error
}

// Serve runs a process until ctx ends, which stops it cleanly, or the node fails. A second signal is the caller's to act on. out gets what a person at a
// terminal wants to read, logs the log. nodes.ErrFenced (wrapped) when the node was fenced.
func Serve(ctx context.Context, c Config, build ops.Build, out, logs io.Writer) error {
	if err := c.Validate(); err != nil {
		return err
	}
	var p process
	// The life of the parts is longer than ctx, whose end begins the stop.
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	app := fx.New(graph(alive, c, build, logs), fx.Invoke(func(in process) { p = in }), fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }))
	closeAll := func() error {
		closing, cancel := context.WithTimeout(alive, closeTimeout)
		defer cancel()
		return app.Stop(closing)
	}
	if err := app.Err(); err != nil {
		return first(p.Logger, dig.RootCause(err), closeAll())
	}
	if err := app.Start(ctx); err != nil {
		return first(p.Logger, err, closeAll())
	}
	return first(p.Logger, p.run(ctx, alive, out), closeAll())
}

// first is what ended the process: the first error. What else failed because of it, or on the way out, goes to the log.
func first(logger *slog.Logger, err, after error) error {
	if err == nil {
		return after
	}
	if after != nil && logger != nil {
		logger.Warn("stopping after a failure did not go cleanly either", "err", after)
	}
	return err
}

// run starts the parts in order, waits, and stops them in reverse:
//
//	start: admin (so that readiness can be asked for at once), stores, node, Kafka and HTTP
//	stop:  readiness fails and the drain delay passes, Kafka and HTTP, node (streams are closed), admin; then stores, by fx
func (p process) run(ctx, alive context.Context, out io.Writer) error {
	defer p.Sockets.close()
	var serving sync.WaitGroup
	failed := make(chan error, 3)
	serve := func(name string, l net.Listener, run func(net.Listener) error) {
		if l == nil {
			return
		}
		serving.Go(func() {
			if err := run(l); err != nil {
				failed <- fmt.Errorf("%s listener on %s: %w", name, l.Addr(), err)
			}
		})
	}
	serve("admin", p.Sockets.admin, p.Admin.Serve)
	err := p.start(ctx)
	switch {
	case err != nil && ctx.Err() != nil: // asked to stop while it waited for its stores, say
		p.Logger.Info("stopping before it was started", "why", context.Cause(ctx), "err", err)
		err = nil
	case err == nil:
		serve("Kafka", p.Sockets.kafka, func(l net.Listener) error { return p.Kafka.Serve(alive, l) })
		serve("HTTP", p.Sockets.http, p.HTTP.Serve)
		p.greet(out)
		err = p.await(ctx, failed)
	}
	err = first(p.Logger, err, p.stop(alive))
	serving.Wait()
	return err
}

// start brings the node up. Until the metadata and the object store answer it tries again and says so.
func (p process) start(ctx context.Context) error {
	if err := objects.CheckAccess(ctx, p.Objects); err != nil {
		return fmt.Errorf("--storage: %w", err)
	}
	if err := AwaitDatabase(ctx, p.Database, p.Logger); err != nil {
		return err
	}
	if err := p.Layer.EnsureFormat(ctx); err != nil {
		return err
	}
	if err := p.Sockets.addresses().write(p.Config.Process.DataDir); err != nil {
		return err
	}
	return p.Node.Start(ctx)
}

// await returns when the process should stop: nil when it was asked to.
func (p process) await(ctx context.Context, failed <-chan error) error {
	select {
	case <-ctx.Done():
		p.Logger.Info("stopping", "why", context.Cause(ctx))
		return nil
	case <-p.Node.Done():
		return p.Node.Err()
	case <-failedDatabase(p.Database):
		// Nothing can be closed properly over it: whoever starts the process again recovers what was acknowledged.
		return fmt.Errorf("the metadata cannot be written: %w", p.Database.(fallible).Err())
	case err := <-failed:
		return err
	}
}

func (p process) stop(alive context.Context) error {
	if p.Node.State() != nodes.StateNew { // there is nothing to drain when the start failed before the node's
		p.Node.Drain(alive)
	}
	limit := p.Config.Process.ShutdownTimeout
	select {
	case <-failedDatabase(p.Database):
		limit = min(limit, time.Second) // nothing comes of waiting
	default:
	}
	ctx, cancel := context.WithTimeout(alive, limit)
	defer cancel()
	shutdown(ctx, p.Logger, map[string]server{"Kafka": p.Kafka, "HTTP": p.HTTP})
	// Closing the streams makes durable what they buffer: it has a time of its own, so that a slow request does not take it away.
	closing, cancelClosing := context.WithTimeout(alive, limit)
	defer cancelClosing()
	err := p.Node.Stop(closing)
	shutdown(ctx, p.Logger, map[string]server{"admin": p.Admin})
	return err
}

// shutdown stops listeners at the same time and waits for them.
func shutdown(ctx context.Context, logger *slog.Logger, servers map[string]server) {
	var wg sync.WaitGroup
	for name, s := range servers {
		wg.Go(func() {
			if err := s.Shutdown(ctx); err != nil {
				logger.Warn("listener was cut off with requests in flight", "listener", name, "err", err)
			}
		})
	}
	wg.Wait()
}
