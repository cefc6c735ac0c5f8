package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"go.uber.org/fx"

	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/fdb"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/ops"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/open"
	"github.com/varvedb/varve/wal/objects/s3"
)

// MetadataDir is where the embedded engine lies in a data directory.
func MetadataDir(dataDir string) string { return filepath.Join(dataDir, "metadata") }

// OpenDatabase opens the engine of the metadata: FoundationDB when a cluster file is given, else the embedded one.
func OpenDatabase(ctx context.Context, c Config, logger *slog.Logger) (kv.Database, error) {
	if c.usesFDB() {
		options := c.FDB
		options.Logger = logger
		return fdb.Open(ctx, options)
	}
	if err := os.MkdirAll(MetadataDir(c.Process.DataDir), 0o755); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	db, err := embedded.Open(MetadataDir(c.Process.DataDir), embedded.Options{Logger: logger})
	if errors.Is(err, embedded.ErrInUse) {
		return nil, fmt.Errorf("data directory %s is in use by another process: %w", c.Process.DataDir, err)
	}
	return db, err
}

func newDatabase(ctx context.Context, lc fx.Lifecycle, c Config, logger *slog.Logger) (kv.Database, error) {
	if err := os.MkdirAll(c.Process.DataDir, 0o755); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
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
