// Package remote lends the embedded engine of one process to other processes on the same machine, over a unix socket. It is for development
// and tests, where several nodes share one database without a server to install: the process that has the engine is a single point of
// failure, and nothing on the way is encrypted or authenticated but by the socket's file permissions. Real clusters use FoundationDB.
//
// A transaction lives in the server: it has a connection for itself while it runs. The client gathers writes and sends them with the next
// read or with the commit, so reads see the writes before them and none after them. Reads are sent when they are started and waited for when they are
// needed, so that many of them take the time of one exchange. The retry loop is the client's.
//
// Protocol: frames of a 4-byte big-endian length and a body. A request is the writes since the last one and an operation (see frame.go); a reply
// is a status (0, or a kind of error and its text) and what the operation gives. Requests are done, and their replies come, in the order in which they were
// sent. After a commit with watches the connection is theirs: the server sends the number and the outcome of each watch that ends.
package remote

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// retryBackoff is the pause between runs of a transaction.
var retryBackoff = kv.Backoff{First: time.Millisecond, Max: 200 * time.Millisecond}

// maxIdle is how many connections are kept for the next transactions.
const maxIdle = 64

// Database is a kv.Database whose engine is in another process.
type Database struct {
	path       string
	goroutines sync.WaitGroup // that read connections, or wait for watches

	mu     sync.Mutex // guards all below
	closed bool
	idle   []*conn
	open   map[*conn]struct{}
}

var _ kv.Database = (*Database)(nil)

// Open gives the database that is served on the unix socket at path. It does not connect: while nobody serves, transactions are tried again
// until their context ends.
func Open(path string) *Database {
	return &Database{path: path, open: map[*conn]struct{}{}}
}

// Transact implements kv.Database.
func (db *Database) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	var commit kv.Commit
	err := kv.Retry(ctx, retryBackoff, func() (err error) {
		commit, err = db.attempt(ctx, fn)
		return err
	})
	if err != nil {
		return kv.Commit{}, err
	}
	return commit, nil
}

func (db *Database) attempt(ctx context.Context, fn func(kv.Transaction) error) (commit kv.Commit, err error) {
	t := &transaction{db: db, ctx: ctx}
	defer func() { t.end(err) }()
	if err := fn(t); err != nil {
		return kv.Commit{}, err
	}
	return t.commit()
}

// ReadTransact implements kv.Database.
func (db *Database) ReadTransact(ctx context.Context, fn func(kv.ReadTransaction) error) error {
	return kv.Retry(ctx, retryBackoff, func() (err error) {
		t := &transaction{db: db, ctx: ctx, readOnly: true}
		defer func() { t.end(err) }()
		if err := fn(t); err != nil {
			return err
		}
		// A function that read nothing learns all the same that the database is closed.
		return db.usable()
	})
}

// Close implements kv.Database: it cuts the transactions and watches under way.
func (db *Database) Close() error {
	db.mu.Lock()
	db.closed = true
	var errs []error
	for c := range db.open {
		if err := c.Close(); !errors.Is(err, net.ErrClosed) { // one that has failed is closed, and perhaps not yet forgotten
			errs = append(errs, err)
		}
	}
	db.idle, db.open = nil, map[*conn]struct{}{}
	db.mu.Unlock()
	db.goroutines.Wait()
	return errors.Join(errs...)
}

func (db *Database) usable() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return kv.ErrClosed
	}
	return nil
}
