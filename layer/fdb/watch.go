//go:build fdb

package fdb

import (
	"context"
	"fmt"

	apple "github.com/apple/foundationdb/bindings/go/src/fdb"
)

// watch is a watch in the library. The library starts it when its transaction is committed, and ends it with an error when
// the transaction is not.
type watch struct {
	database *database
	future   apple.FutureNil
	turn     chan struct{} // holds the one Wait that blocks in the library
}

// Wait blocks in the library until the watch fires, and cancels it when ctx ends or the database is closed.
func (w *watch) Wait(ctx context.Context) error {
	ctx, leave, err := w.database.enter(ctx)
	if err != nil {
		w.future.Cancel()
		return err
	}
	defer leave()
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return fmt.Errorf("foundationdb: watch: %w", ended(ctx))
	}

	stop := context.AfterFunc(ctx, w.future.Cancel)
	defer stop()
	err = w.future.Get()
	if err == nil {
		return nil
	}
	if cause := ended(ctx); cause != nil {
		return fmt.Errorf("foundationdb: watch: %w", cause)
	}
	return libraryError("watch", err)
}

// Cancel ends the watch; a Wait that blocks returns.
func (w *watch) Cancel() { w.future.Cancel() }

// failedWatch is a watch that could not be started.
type failedWatch struct{ err error }

func (f failedWatch) Wait(context.Context) error { return f.err }

func (failedWatch) Cancel() {}
