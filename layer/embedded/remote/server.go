package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// maxPath is the longest path of a unix socket that every system takes, bytes.
const maxPath = 100

// Engine is what is served: single runs of transactions, since the retry loop is the client's.
type Engine interface {
	Attempt(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error)
}

// Listen makes the socket, only for this user. What a server that was killed left behind is replaced; one that is served is not.
func Listen(path string) (net.Listener, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("socket %s: a path of %d bytes, systems take at most %d: choose a shorter directory", path, len(path), maxPath)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("socket %s is served by another process", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier process: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve lends the engine to whoever connects, until ctx ends. Then it cuts every connection, closes the listener and waits; transactions
// under way are not committed, but for commits that the engine has begun.
func Serve(ctx context.Context, l net.Listener, engine Engine, logger *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logger.Warn("the embedded metadata engine is served to other processes: for development and tests only", "socket", l.Addr().String())
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer cancel()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("socket %s: %w", l.Addr(), err)
		}
		sessions.Go(func() { serve(ctx, c, engine, logger) })
	}
}

// serve answers one connection.
func serve(ctx context.Context, c net.Conn, engine Engine, logger *slog.Logger) {
	unlink := context.AfterFunc(ctx, func() { c.Close() })
	defer func() {
		unlink()
		c.Close()
	}()
	s := newSession(c)
	if err := s.greet(); err != nil {
		logger.Debug("metadata client refused", "error", err)
		return
	}
	for {
		if err := s.transaction(ctx, engine); err != nil {
			if ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				logger.Debug("metadata client lost", "error", err)
			}
			return
		}
	}
}

// patience is how long a client may leave a transaction open between two requests, or replies unread: longer than transactions live.
const patience = 10 * time.Second
