package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/fx"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/embedded/remote"
	"github.com/varvedb/varve/layer/fdb"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
	"github.com/varvedb/varve/ops"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/open"
	"github.com/varvedb/varve/wal/objects/s3"
)

// MetadataDir is where the embedded engine lies in a data directory.
func MetadataDir(dataDir string) string { return filepath.Join(dataDir, "metadata") }

// OpenDatabase opens the engine of the metadata: FoundationDB when a cluster file is given, another process's embedded one when its socket is, else
// the embedded one.
func OpenDatabase(ctx context.Context, c Config, logger *slog.Logger) (kv.Database, error) {
	if c.usesFDB() {
		return openFDB(ctx, c.FDB, logger)
	}
	if path := c.Process.MetadataSocket; path != "" {
		logger.Warn("the metadata is in another process of this machine: for development and tests only", "socket", path)
		return remote.Open(path), nil
	}
	if err := os.MkdirAll(MetadataDir(c.Process.DataDir), 0o755); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", c.Process.DataDir, err)
	}
	db, err := embedded.Open(MetadataDir(c.Process.DataDir), embedded.Options{Logger: logger})
	if errors.Is(err, embedded.ErrInUse) {
		return nil, fmt.Errorf("data directory %s: %w by another process; stop it or choose another --data-dir", c.Process.DataDir, embedded.ErrInUse)
	}
	return db, err
}

// NewLayer gives the metadata of the configured cluster in its subspace of a database; it sends nothing.
func NewLayer(c Config, db kv.Database) (*layer.Store, error) {
	if c.Process.Subspace == "" {
		return layer.New(db, c.Process.Cluster)
	}
	return layer.New(db, c.Process.Cluster, layer.WithSubspace(tuple.Tuple{c.Process.Subspace}))
}

// foundationDB is the engine of a process, which has one network thread that ends with it.
type foundationDB struct{ *fdb.Database }

func openFDB(ctx context.Context, options fdb.Options, logger *slog.Logger) (kv.Database, error) {
	options.Logger = logger
	db, err := fdb.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	return foundationDB{db}, nil
}

// Close also stops the network thread: no other database is opened after it.
func (d foundationDB) Close() error {
	return errors.Join(d.Database.Close(), fdb.StopNetwork())
}

// fallible is a database that can fail for good, and works again once it is opened anew.
type fallible interface {
	Failed() <-chan struct{}
	Err() error
}

// failedDatabase is a channel that is closed when the database has failed for good; nil for one that never does.
func failedDatabase(db kv.Database) <-chan struct{} {
	if f, ok := db.(fallible); ok {
		return f.Failed()
	}
	return nil
}

// reachable is a database that can tell whether its cluster answers.
type reachable interface {
	WaitReachable(ctx context.Context, interval time.Duration) error
}

// sayEvery is how often a process that waits for its stores says so.
const sayEvery = 3 * time.Second

// AwaitDatabase returns once the database answers, and says every few seconds that it does not.
func AwaitDatabase(ctx context.Context, db kv.Database, logger *slog.Logger) error {
	if r, ok := db.(reachable); ok {
		return r.WaitReachable(ctx, sayEvery)
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, sayEvery)
		err := db.ReadTransact(attempt, func(tr kv.ReadTransaction) error {
			_, err := tr.ReadVersion()
			return err
		})
		if err == nil || ctx.Err() != nil || errors.Is(err, kv.ErrClosed) {
			cancel()
			return err
		}
		logger.Warn("metadata is not available", "err", err)
		<-attempt.Done() // an error that came early must not make a busy loop
		cancel()
	}
}

func newDatabase(ctx context.Context, lc fx.Lifecycle, c Config, logger *slog.Logger) (kv.Database, error) {
	if err := os.MkdirAll(c.Process.DataDir, 0o755); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", c.Process.DataDir, err)
	}
	db, err := OpenDatabase(ctx, c, logger)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(db.Close))
	return db, nil
}

func newObjectStore(ctx context.Context, lc fx.Lifecycle, c Config, metrics *ops.ObjectMetrics, logger *slog.Logger) (objects.Store, error) {
	url, err := c.Process.storage()
	if err != nil {
		return nil, err
	}
	store, err := open.Store(ctx, url, open.Options{Observer: metrics, S3: s3.Options{Logger: logger}})
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(store.Close))
	return store, nil
}
