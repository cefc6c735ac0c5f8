// Package embedded is layer/kv over Pebble: one process, one directory, no server. Transactions are serializable and optimistic, with
// FoundationDB's conflict rules, limits and errors. See README.md for how it works.
package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varvedb/varve/layer/kv"
)

// ErrInUse: another process, or another DB of this one, has the directory open.
var ErrInUse = errors.New("directory is in use")

// Options of an engine. The zero value is good for a directory on disk.
type Options struct {
	// InMemory keeps everything in memory and ignores the directory. Commits wait for nothing. For tests.
	InMemory bool
	// FS is the file system; nil means the machine's. For tests that crash or fail it.
	FS vfs.FS
	// Logger gets warnings and Pebble's own messages (at debug); nil means none.
	Logger *slog.Logger
	// Now is the clock by which transactions grow old; nil means time.Now.
	Now func() time.Time
	// CacheSize is the size of the block cache, bytes; 0 means 64 MiB (8 MiB in memory).
	CacheSize int64
	// MemTableSize is how much is written before Pebble flushes it, bytes; 0 means 16 MiB.
	MemTableSize uint64
	// MaxTrackedWrites bounds the written ranges of the last five seconds that are remembered to find conflicts; beyond it,
	// the oldest are forgotten and transactions that read before them are too old. 0 means a million (some 300 MB).
	MaxTrackedWrites int
	// UnsafeSkipPhantomChecks makes range reads conflict over the rows that they returned and not over the space between. It exists
	// to show that the tests notice.
	UnsafeSkipPhantomChecks bool
}

func (o Options) withDefaults() Options {
	if o.InMemory {
		o.FS = vfs.NewMem()
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.CacheSize == 0 {
		o.CacheSize = 64 << 20
		if o.InMemory {
			o.CacheSize = 8 << 20
		}
	}
	if o.MemTableSize == 0 {
		o.MemTableSize = 16 << 20
	}
	if o.MaxTrackedWrites == 0 {
		o.MaxTrackedWrites = 1_000_000
	}
	return o
}

// retryBackoff is the pause between runs of a transaction. Conflicts are the only common reason, and clear with the next commit.
var retryBackoff = kv.Backoff{First: 500 * time.Microsecond, Max: 100 * time.Millisecond}

// DB is an open engine.
type DB struct {
	options   Options
	log       *slog.Logger
	now       func() time.Time
	pebble    *pebble.DB
	lock      *pebble.Lock
	gate      gate
	views     *views
	watches   *watches
	committer *committer

	closeOnce sync.Once
	closeErr  error
}

var _ kv.Database = (*DB)(nil)

// Open opens the engine in dir, which it creates if need be. It fails with ErrInUse while somebody else has it open.
func Open(dir string, options Options) (*DB, error) {
	options = options.withDefaults()
	lock, err := lockDirectory(dir, options)
	if err != nil {
		return nil, err
	}
	store, err := pebble.Open(dir, pebbleOptions(options, lock))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open embedded database in %s: %w", dir, err), lock.Close())
	}
	version, err := storedVersion(store)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open embedded database in %s: %w", dir, err), store.Close(), lock.Close())
	}
	db := &DB{
		options: options, log: options.Logger, now: options.Now, pebble: store, lock: lock,
		views:   newViews(&view{version: version, snapshot: store.NewSnapshot()}),
		watches: newWatches(),
	}
	db.committer = &committer{
		db: store, views: db.views, watches: db.watches, now: options.Now, log: options.Logger,
		durable: !options.InMemory, maxWrites: options.MaxTrackedWrites,
		queue: make(chan *commitRequest, queueSize), synced: make(chan *group), failed: make(chan struct{}),
		resolver: newResolver(version), version: version,
	}
	db.committer.start()
	return db, nil
}

func lockDirectory(dir string, options Options) (*pebble.Lock, error) {
	if err := options.FS.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create directory %s of the embedded database: %w", dir, err)
	}
	lock, err := pebble.LockDirectory(dir, options.FS)
	if err != nil {
		return nil, fmt.Errorf("embedded database in %s: %w (is another varve running on it?): %w", dir, ErrInUse, err)
	}
	return lock, nil
}

func pebbleOptions(o Options, lock *pebble.Lock) *pebble.Options {
	p := &pebble.Options{
		FS:                 o.FS,
		Lock:               lock,
		DisableWAL:         o.InMemory,
		CacheSize:          o.CacheSize,
		MemTableSize:       o.MemTableSize,
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             pebbleLogger{o.Logger},
	}
	for i := range p.Levels {
		// Most commands look for rows that are not there yet.
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return p
}

// storedVersion is the newest commit version on disk; 1 in a new database.
func storedVersion(store *pebble.DB) (int64, error) {
	value, closer, err := store.Get(versionKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read commit version: %w", err)
	}
	if len(value) != 8 {
		return 0, errors.Join(fmt.Errorf("commit version of %d bytes %x, want 8", len(value), value), closer.Close())
	}
	version := int64(binary.BigEndian.Uint64(value))
	return version, closer.Close()
}

// Transact implements kv.Database.
func (db *DB) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	var commit kv.Commit
	err := kv.Retry(ctx, retryBackoff, func() (err error) {
		commit, err = db.Attempt(ctx, fn)
		return err
	})
	if err != nil {
		return kv.Commit{}, err
	}
	return commit, nil
}

// Attempt is one run of Transact: it returns retryable errors, too, and leaves it to the caller to run fn again.
func (db *DB) Attempt(ctx context.Context, fn func(kv.Transaction) error) (commit kv.Commit, err error) {
	t := db.begin(ctx, false)
	defer t.end()
	defer func() {
		if err != nil {
			t.dropWatches(err)
		}
	}()
	if err := fn(t); err != nil {
		return kv.Commit{}, err
	}
	return t.commit()
}

// ReadTransact implements kv.Database.
func (db *DB) ReadTransact(ctx context.Context, fn func(kv.ReadTransaction) error) error {
	return kv.Retry(ctx, retryBackoff, func() error {
		t := db.begin(ctx, true)
		defer t.end()
		if err := fn(t); err != nil {
			return err
		}
		// A function that read nothing learns all the same that the engine is closed.
		if err := db.gate.enter(); err != nil {
			return err
		}
		db.gate.leave()
		return nil
	})
}

// Failed is closed when a write to the disk has failed: the engine takes no commit any more until it is opened again. Err says why.
func (db *DB) Failed() <-chan struct{} { return db.committer.failed }

// Err is why the engine has failed, nil before.
func (db *DB) Err() error {
	if broken := db.committer.broken.Load(); broken != nil {
		return *broken
	}
	return nil
}

// Close implements kv.Database: it waits for reads and commits under way and fails what comes later with ErrClosed. It does
// not wait for functions that run in transactions.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		db.gate.close()
		db.committer.stop()
		db.watches.close()
		db.closeErr = errors.Join(db.views.close(), db.pebble.Close(), db.lock.Close())
	})
	return db.closeErr
}

func (db *DB) release(v *view) {
	if err := db.views.release(v); err != nil {
		db.log.Warn("release view", "error", err)
	}
}

// pebbleLogger sends Pebble's messages to slog.
type pebbleLogger struct{ log *slog.Logger }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.log.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf must not return: Pebble calls it when it cannot go on, and whoever goes on might answer for what is not on disk.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	message := "pebble: " + fmt.Sprintf(format, args...)
	l.log.Error(message)
	panic(message)
}
