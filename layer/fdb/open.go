package fdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// ErrNotBuilt: the binary was built without the tag fdb.
var ErrNotBuilt = errors.New("this binary was built without FoundationDB support; build with make on a machine with a C compiler")

// ErrNetworkStopped: StopNetwork was called, after which a process cannot use FoundationDB again.
var ErrNetworkStopped = errors.New("FoundationDB network stopped: it can be started once in a process")

// ErrNetworkOptions: a second Open wants other options for the client's network than the first one.
var ErrNetworkOptions = errors.New("FoundationDB network is running with other options")

// engine is what the build tag adds.
type engine interface {
	kv.Database
	Ping(ctx context.Context) error
	ClientVersion() string
}

// Database is an open FoundationDB cluster; it is a kv.Database. Transactions of it that wait for the cluster return
// when their context ends, when their attempts time out, and when Close is called.
type Database struct {
	engine

	cluster ClusterFile
	logger  *slog.Logger
}

// Open loads the client library, starts its network if this is the first Open of the process, and gives the cluster of
// the cluster file. It does not wait for the cluster and does not fail when it cannot be reached: Ping and WaitReachable
// tell. ctx bounds the opening alone.
//
// Errors: ErrNotBuilt; client.ErrMissing, client.ErrTooOld, client.ErrIncomplete, client.ErrOtherPath; ErrClusterFile;
// ErrNetworkStopped; ErrNetworkOptions; and what Options.Validate finds.
//
// Databases of one cluster file share one connection. A database that was closed can be opened again, until StopNetwork.
func Open(ctx context.Context, options Options) (*Database, error) {
	options = options.withDefaults()
	if !Supported {
		return nil, ErrNotBuilt
	}
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("foundationdb options: %w", err)
	}
	cluster, err := ReadClusterFile(options.ClusterFile)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	opened, err := openEngine(ctx, options)
	if err != nil {
		return nil, err
	}
	options.Logger.Info("foundationdb opened", "cluster_file", options.ClusterFile, "cluster", cluster.String(),
		"client_version", opened.ClientVersion())
	return &Database{engine: opened, cluster: cluster, logger: options.Logger}, nil
}

// StopNetwork ends the client's network thread and waits for it. Call it once at the end of the process, after every
// Database was closed; it fails while one is open. Without a running network it does nothing.
func StopNetwork() error { return stopNetwork() }

// Cluster is what the cluster file said when the database was opened.
func (d *Database) Cluster() ClusterFile { return d.cluster }

// WaitReachable pings the cluster until it answers, and logs a warning each interval while it does not. It returns nil
// once the cluster answered, and otherwise when ctx ends, with the last reason.
func (d *Database) WaitReachable(ctx context.Context, interval time.Duration) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, interval)
		err := d.Ping(attempt)
		if err == nil || ctx.Err() != nil || errors.Is(err, kv.ErrClosed) {
			cancel()
			return err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v", interval)
		}
		d.logger.Warn("foundationdb cluster is not available", "cluster", d.cluster.String(), "error", err)
		<-attempt.Done() // an error that came early must not make a busy loop
		cancel()
	}
}
