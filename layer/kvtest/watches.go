package kvtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
)

func watchChecks() []check {
	return []check{
		{"watches/fire on a change", watchesFire},
		{"watches/fire when the change came first", watchFiresOnEarlierChange},
		{"watches/no change is missed", watchesMissNothing},
		{"watches/end", watchesEnd},
		{"watches/of a run that was not committed", watchOfFailedRun},
	}
}

// watch starts a watch on key, in a transaction that does no more.
func (e *env) watch(key string) kv.Watch {
	e.Helper()
	var w kv.Watch
	e.write(func(tx kv.Transaction) { w = tx.Watch(b(key)) })
	return w
}

// fires waits for w.
func (e *env) fires(w kv.Watch, what string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	require.NoError(e, w.Wait(ctx), what)
	require.NoError(e, w.Wait(ctx), "it has fired for good")
	w.Cancel()
}

func watchesFire(e *env) {
	for name, change := range map[string]func(tx kv.Transaction){
		"set":               func(tx kv.Transaction) { tx.Set(b("k"), b("2")) },
		"set to empty":      func(tx kv.Transaction) { tx.Set(b("k"), nil) },
		"clear":             func(tx kv.Transaction) { tx.Clear(b("k")) },
		"clear range":       func(tx kv.Transaction) { tx.ClearRange(b("a"), b("z")) },
		"add":               func(tx kv.Transaction) { tx.Add(b("k"), []byte{1}) },
		"versionstamp":      func(tx kv.Transaction) { tx.SetVersionstampedValue(b("k"), stampedKey("", "")) },
		"set in many steps": func(tx kv.Transaction) { tx.Clear(b("k")); tx.Set(b("k"), b("1")); tx.Set(b("k"), b("3")) },
	} {
		e.set("k", "1", "other", "1")
		first, second := e.watch("k"), e.watch("k")
		e.set("other", "2")
		e.write(change)
		e.fires(first, name)
		e.fires(second, name)
	}
	e.write(func(tx kv.Transaction) { tx.Clear(b("k")) })
	absent := e.watch("k")
	e.set("k", "")
	e.fires(absent, "an absent key was set to an empty value")
	var own kv.Watch
	e.write(func(tx kv.Transaction) {
		tx.Set(b("k"), b("own"))
		own = tx.Watch(b("k"))
	})
	e.set("k", "other")
	e.fires(own, "a value that the transaction of the watch had set itself was changed")
	runs := 0
	e.write(func(tx kv.Transaction) {
		own = tx.Watch(b("k"))
		runs++ // an earlier run may have been committed
		tx.Set(b("k"), fmt.Append(nil, runs))
	})
	e.fires(own, "the transaction of the watch changed the value itself, after it had made the watch")
}

func watchFiresOnEarlierChange(e *env) {
	e.set("k", "1")
	var w kv.Watch
	first := true
	e.do(func(tx kv.Transaction) error {
		if _, err := tx.Get(b("k")).Get(); err != nil {
			return err
		}
		w = tx.Watch(b("k"))
		if first {
			first = false
			e.set("k", "2")
		}
		return nil
	})
	// If a conflict made it run again, it saw the change already.
	e.set("k", "3")
	e.fires(w, "the value changed before the transaction of the watch ended")
}

// watchesMissNothing follows a counter by watches only: the last value is always reached.
func watchesMissNothing(e *env) {
	const last = 30
	e.set("n", "0")
	var group errgroup.Group
	for range 4 {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(e.ctx, patience)
			defer cancel()
			for {
				var n int
				var w kv.Watch
				_, err := e.db.Transact(ctx, func(tx kv.Transaction) error {
					value, err := tx.Get(b("n")).Get()
					if err != nil {
						return err
					}
					w = tx.Watch(b("n"))
					n, err = number(value)
					return err
				})
				if err != nil {
					return err
				}
				if n == last {
					w.Cancel()
					return nil
				}
				if err := w.Wait(ctx); ctx.Err() != nil {
					return fmt.Errorf("waiting for the change of %d: %w", n, err)
				}
			}
		})
	}
	for i := range last {
		e.set("n", fmt.Sprint(i+1))
	}
	require.NoError(e, group.Wait())
}

func watchesEnd(e *env) {
	cancelled := e.watch("k")
	cancelled.Cancel()
	cancelled.Cancel()
	require.Error(e, cancelled.Wait(e.ctx), "a watch that was cancelled")

	// A watch may fire without cause, so it is given a few tries to time out.
	for range 5 {
		w := e.watch("k")
		ctx, cancel := context.WithTimeout(e.ctx, 20*time.Millisecond)
		err := w.Wait(ctx)
		cancel()
		w.Cancel()
		if err != nil {
			require.ErrorIs(e, err, context.DeadlineExceeded)
			return
		}
	}
	e.Fatal("5 watches on a key that nobody changes fired at once")
}

func watchOfFailedRun(e *env) {
	mine := errors.New("mine")
	var w kv.Watch
	_, err := e.db.Transact(e.ctx, func(tx kv.Transaction) error {
		w = tx.Watch(b("k"))
		return mine
	})
	require.ErrorIs(e, err, mine)
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	require.Error(e, w.Wait(ctx), "the watch of a transaction that was given up")
	require.NoError(e, ctx.Err(), "and it says so at once")
}
