package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
)

// sweepInterval is how often streams that nobody asks for are looked at for expiry.
const sweepInterval = 5 * time.Second

// expirations deletes streams that have expired: at a fixed time, or when they were not read or written for their TTL. The time of
// last use is known to the node that leads a stream, in memory: a restart begins the TTL anew, so that a stream may live longer than
// its TTL and never less.
type expirations struct {
	broker Broker
	logger *slog.Logger
	began  time.Time

	mu   sync.Mutex
	used map[int64]time.Time // by table id: last use of tables with a TTL
}

func newExpirations(broker Broker, logger *slog.Logger) *expirations {
	return &expirations{broker: broker, logger: logger, began: time.Now(), used: map[int64]time.Time{}}
}

// deadline is when the table expires; ok is false for one that does not.
func (x *expirations) deadline(table layer.TableRow) (at time.Time, ok bool) {
	if text := table.Options[nodes.OptionHTTPExpiresAt]; text != "" {
		at, err := time.Parse(time.RFC3339, text)
		return at, err == nil
	}
	seconds, err := strconv.ParseInt(table.Options[nodes.OptionHTTPTTLSeconds], 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	x.mu.Lock()
	last, known := x.used[table.ID]
	x.mu.Unlock()
	if !known {
		last = table.CreatedAt
		if last.Before(x.began) {
			last = x.began
		}
	}
	return last.Add(time.Duration(seconds) * time.Second), true
}

// touch records a use of the stream, which begins its TTL anew.
func (x *expirations) touch(table layer.TableRow) {
	if table.Options[nodes.OptionHTTPTTLSeconds] == "" {
		return
	}
	x.mu.Lock()
	x.used[table.ID] = time.Now()
	x.mu.Unlock()
}

// run deletes expired streams that this node leads until ctx ends.
func (x *expirations) run(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			x.sweep(ctx)
		}
	}
}

func (x *expirations) sweep(ctx context.Context) {
	now := time.Now()
	exists := map[int64]bool{}
	for _, table := range x.broker.Tables() {
		exists[table.ID] = true
		at, ok := x.deadline(table)
		if !ok || now.Before(at) || ctx.Err() != nil {
			continue
		}
		if _, err := x.broker.Stream(ctx, table.Name, 0); err != nil {
			continue // its leader knows when it was used
		}
		if err := x.delete(ctx, table); err != nil {
			x.logger.Warn("expired stream could not be deleted", "stream", table.Name, "err", err)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.used {
		if !exists[id] {
			delete(x.used, id)
		}
	}
}

func (x *expirations) delete(ctx context.Context, table layer.TableRow) error {
	err := x.broker.DeleteTable(ctx, table.Name)
	if errors.Is(err, nodes.ErrUnknownTable) {
		err = nil
	}
	if err == nil {
		x.logger.Info("stream expired", "stream", table.Name)
	}
	return err
}

// check refuses a stream that has expired, and deletes it. Only the leader of a stream knows when it was used.
func (x *expirations) check(ctx context.Context, table layer.TableRow) error {
	at, ok := x.deadline(table)
	if !ok || time.Now().Before(at) {
		return nil
	}
	if err := x.delete(ctx, table); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q expired at %s", nodes.ErrUnknownTable, table.Name, at.UTC().Format(time.RFC3339))
}
