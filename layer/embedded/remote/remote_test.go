package remote

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is the engine's clock, which the suite moves.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) Age(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

type agingDB struct {
	*Database
	*clock
}

// serveOn serves engine at path and gives what stops it.
func serveOn(t *testing.T, path string, engine Engine) (stop func()) {
	t.Helper()
	l, err := Listen(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, engine, slog.New(slog.DiscardHandler)) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-served)
		})
	}
	t.Cleanup(stop)
	return stop
}

func openAt(t *testing.T, path string) *Database {
	db := Open(path)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// socket is a path for a socket; those of t.TempDir can be too long.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kv")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "kv")
}

func TestContract(t *testing.T) {
	kvtest.Run(t, func(t *testing.T) kv.Database {
		c := &clock{}
		path := socket(t)
		serveOn(t, path, kvtest.OpenEmbedded(t, embedded.Options{Now: c.now}))
		return agingDB{openAt(t, path), c}
	})
}

func set(t *testing.T, db kv.Database, key, value string) {
	t.Helper()
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		tx.Set([]byte(key), []byte(value))
		return nil
	})
	require.NoError(t, err)
}

func get(ctx context.Context, db kv.Database, key string) (value []byte, err error) {
	err = db.ReadTransact(ctx, func(tx kv.ReadTransaction) (err error) {
		value, err = tx.Get([]byte(key)).Get()
		return err
	})
	return value, err
}

func TestServerThatComesBack(t *testing.T) {
	path := socket(t)
	engine := kvtest.OpenEmbedded(t, embedded.Options{})
	stop := serveOn(t, path, engine)
	db := openAt(t, path)
	set(t, db, "a", "1")
	var watch kv.Watch
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		watch = tx.Watch([]byte("a"))
		return nil
	})
	require.NoError(t, err)
	stop()
	require.ErrorIs(t, watch.Wait(t.Context()), kv.ErrUnavailable)

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = get(short, db, "a")
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	got := make(chan string, 1)
	go func() {
		value, _ := get(t.Context(), db, "a")
		got <- string(value)
	}()
	serveOn(t, path, engine)
	require.Equal(t, "1", <-got)
}

// A connection that is lost around a commit must not look like a commit, nor like none.
func TestConnectionLostWhileCommitting(t *testing.T) {
	path := socket(t)
	held, let := make(chan struct{}), make(chan struct{})
	engine := &slowCommits{Engine: kvtest.OpenEmbedded(t, embedded.Options{}), held: held, let: let}
	stop := serveOn(t, path, engine)
	db := openAt(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := db.Transact(ctx, func(tx kv.Transaction) error {
			tx.Set([]byte("a"), []byte("1"))
			return nil
		})
		failed <- err
	}()
	<-held
	cancel()
	require.ErrorIs(t, <-failed, kv.ErrCommitUnknown)
	close(let)
	stop()
}

// slowCommits holds up the end of each transaction.
type slowCommits struct {
	Engine
	held, let chan struct{}
	once      sync.Once
}

func (s *slowCommits) Attempt(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	return s.Engine.Attempt(ctx, func(tx kv.Transaction) error {
		err := fn(tx)
		s.once.Do(func() { close(s.held) })
		<-s.let
		return err
	})
}

func TestCloseCutsTransactionsAndWatches(t *testing.T) {
	path := socket(t)
	serveOn(t, path, kvtest.OpenEmbedded(t, embedded.Options{}))
	db := Open(path)
	var watch kv.Watch
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		watch = tx.Watch([]byte("a"))
		return nil
	})
	require.NoError(t, err)
	_, err = db.Transact(t.Context(), func(tx kv.Transaction) error {
		if _, err := tx.Get([]byte("a")).Get(); err != nil {
			return err
		}
		require.NoError(t, db.Close())
		_, err := tx.Get([]byte("a")).Get()
		return err
	})
	require.ErrorIs(t, err, kv.ErrClosed)
	require.ErrorIs(t, watch.Wait(t.Context()), kv.ErrClosed)
	_, err = get(t.Context(), db, "a")
	require.ErrorIs(t, err, kv.ErrClosed)
	require.NoError(t, db.Close())
}

func TestSocketInUse(t *testing.T) {
	path := socket(t)
	serveOn(t, path, kvtest.OpenEmbedded(t, embedded.Options{}))
	_, err := Listen(path)
	require.ErrorContains(t, err, "served by another process")
	_, err = Listen("/tmp/" + string(make([]byte, maxPath)))
	require.ErrorContains(t, err, "shorter")
}

// Whatever a client sends, the server answers or hangs up, and goes on serving others.
func FuzzSession(f *testing.F) {
	f.Add([]byte{0, 0, 0, 5, 1, writeSet, 1, 'k', 0})
	f.Add([]byte{0, 0, 0, 2, 0, opVersion, 0, 0, 0, 2, 0, opCommit})
	f.Add([]byte{0, 0, 0, 6, 1, writeSet, 1, 'k', 0, opCommit})
	f.Add([]byte{0, 0, 0, 6, 0, opGetRange, 3, 1, 0, 0, 0xff, 0xff, 0xff, 0xff})
	engine, err := embedded.Open("", embedded.Options{InMemory: true})
	require.NoError(f, err)
	f.Cleanup(func() { engine.Close() })
	f.Fuzz(func(t *testing.T, sent []byte) {
		client, server := net.Pipe()
		var both sync.WaitGroup
		both.Go(func() { serve(t.Context(), server, engine, slog.New(slog.DiscardHandler)) })
		both.Go(func() {
			buffer := make([]byte, 1024)
			for {
				if _, err := client.Read(buffer); err != nil {
					return
				}
			}
		})
		client.Write([]byte(hello))
		client.Write(sent)
		client.Close()
		both.Wait()
	})
}
