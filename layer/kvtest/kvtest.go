// Package kvtest is the contract of layer/kv: what every engine must do, as tests, and the database that all other tests open.
//
// The checks hold for a FoundationDB cluster as well as for the embedded engine. So what may happen on a cluster at any time is
// allowed for: a conflict without cause, a run repeated because its commit had an unknown outcome, a watch that fires early, latency. A check that
// something does not conflict passes when one of a few tries has no conflict.
package kvtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

// patience bounds the wait for anything that must happen.
const patience = 60 * time.Second

// Aging is implemented by databases whose clock tests can move; with others the suite waits.
type Aging interface {
	// Age lets d go by, for the ages of transactions.
	Age(d time.Duration)
}

// check is one part of the contract. It runs in an empty database of its own.
type check struct {
	name string
	run  func(e *env)
}

// Run runs the suite. Each check opens a database, which open has to clean up when the test ends, and uses it under a random prefix.
func Run(t *testing.T, open func(t *testing.T) kv.Database) {
	for _, c := range allChecks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.on(t, open(t))
		})
	}
}

// on runs the check in a part of db.
func (c check) on(t testing.TB, db kv.Database) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	prefixed := kv.Prefixed(db, Prefix())
	defer func() {
		// Not in a cleanup: db may be closed by one that runs earlier.
		if err := Empty(ctx, prefixed); err != nil {
			t.Errorf("clear what the check left: %v", err)
		}
	}()
	c.run(&env{TB: t, ctx: ctx, db: prefixed, whole: db})
}

func allChecks() []check {
	var all []check
	for _, part := range [][]check{
		rowChecks(), rangeChecks(), ownWriteChecks(), addChecks(), conflictChecks(), phantomChecks(), serializableChecks(), historyChecks(),
		versionstampChecks(), watchChecks(), limitChecks(), ageChecks(), retryChecks(), readOnlyChecks(),
	} {
		all = append(all, part...)
	}
	return all
}

// env is what a check works with.
type env struct {
	testing.TB
	ctx   context.Context
	db    kv.Database // empty, under a prefix
	whole kv.Database // what db is a part of
}

func b(s string) []byte { return []byte(s) }

// do runs fn in a transaction that must be committed.
func (e *env) do(fn func(tx kv.Transaction) error) kv.Commit {
	e.Helper()
	commit, err := e.db.Transact(e.ctx, fn)
	require.NoError(e, err)
	return commit
}

// write runs fn, which cannot fail, in a transaction.
func (e *env) write(fn func(tx kv.Transaction)) kv.Commit {
	e.Helper()
	return e.do(func(tx kv.Transaction) error {
		fn(tx)
		return nil
	})
}

// set sets keys and values, in turn.
func (e *env) set(keysAndValues ...string) kv.Commit {
	e.Helper()
	return e.write(func(tx kv.Transaction) {
		for i := 0; i < len(keysAndValues); i += 2 {
			tx.Set(b(keysAndValues[i]), b(keysAndValues[i+1]))
		}
	})
}

// read runs fn in a read-only transaction that must succeed.
func (e *env) read(fn func(tx kv.ReadTransaction) error) {
	e.Helper()
	require.NoError(e, e.db.ReadTransact(e.ctx, fn))
}

// get reads one key; nil when it is absent.
func (e *env) get(key string) (value []byte) {
	e.Helper()
	e.read(func(tx kv.ReadTransaction) (err error) {
		value, err = tx.Get(b(key)).Get()
		return err
	})
	return value
}

// all reads every row.
func (e *env) all() (rows []kv.KeyValue) {
	e.Helper()
	e.read(func(tx kv.ReadTransaction) (err error) {
		rows, err = tx.GetRange(nil, b("\xff"), kv.RangeOptions{}).Get()
		return err
	})
	return rows
}

// texts are rows as key=value, for comparing.
func texts(rows []kv.KeyValue) []string {
	out := []string{}
	for _, row := range rows {
		out = append(out, string(row.Key)+"="+string(row.Value))
	}
	return out
}

// fails runs fn in a transaction that must fail with an error of the given kind.
func (e *env) fails(kind error, fn func(tx kv.Transaction) error, what string) {
	e.Helper()
	_, err := e.db.Transact(e.ctx, fn)
	require.ErrorIs(e, err, kind, what)
}

// interleaved runs body in a transaction, and other in transactions of their own after body has read and before it commits, once. It
// gives how often body ran from then on: 1 when it was committed in spite of other.
func (e *env) interleaved(body, other func(tx kv.Transaction) error) int {
	e.Helper()
	runs := 0
	e.do(func(tx kv.Transaction) error {
		if err := body(tx); err != nil {
			return err
		}
		if runs++; runs == 1 {
			e.do(other)
		}
		return nil
	})
	return runs
}

var errRunAgain = errors.New("run again")

// fresh runs fn in a transaction on exactly the rows that setup writes, committed at its first run: a second one might see what
// the first has left, so it starts over.
func (e *env) fresh(setup func(tx kv.Transaction), fn func(tx kv.Transaction) error) {
	e.Helper()
	const tries = 10
	for range tries {
		e.write(func(tx kv.Transaction) {
			tx.ClearRange(nil, b("\xff"))
			setup(tx)
		})
		runs := 0
		_, err := e.db.Transact(e.ctx, func(tx kv.Transaction) error {
			if runs++; runs > 1 {
				return errRunAgain
			}
			return fn(tx)
		})
		if !errors.Is(err, errRunAgain) {
			require.NoError(e, err)
			return
		}
	}
	e.Fatalf("a transaction that competes with nobody was run again in each of %d tries", tries)
}

// mustConflict checks that body is run again when other commits before it.
func (e *env) mustConflict(body, other func(tx kv.Transaction) error, what string) {
	e.Helper()
	require.Greater(e, e.interleaved(body, other), 1, "no conflict although %s", what)
}

// mustNotConflict checks that body commits in its first run although other commits before it. A cluster may refuse a
// commit for reasons of its own, but not every time.
func (e *env) mustNotConflict(body, other func(tx kv.Transaction) error, what string) {
	e.Helper()
	const tries = 5
	for range tries {
		if e.interleaved(body, other) == 1 {
			return
		}
	}
	e.Fatalf("conflict in each of %d tries although %s", tries, what)
}

// once makes a transaction safe to run twice: it tells whether an earlier run of it was committed, and else sees to it that a later one
// will know.
func once(tx kv.Transaction, id string) (done bool, err error) {
	marker, err := tx.Get(b("once/" + id)).Get()
	if err != nil || marker != nil {
		return marker != nil, err
	}
	tx.Set(b("once/"+id), b("done"))
	return false, nil
}

// reading makes a body of a transaction that reads with fn and then writes a row, so that its reads are checked when it commits.
func reading(fn func(tx kv.Transaction) error) func(tx kv.Transaction) error {
	return func(tx kv.Transaction) error {
		tx.Set(b("\xfe/written"), b("x"))
		return fn(tx)
	}
}

// readKey and the like are bodies for interleaved.
func readKey(key string) func(tx kv.Transaction) error {
	return reading(func(tx kv.Transaction) error {
		_, err := tx.Get(b(key)).Get()
		return err
	})
}

func readRange(begin, end string, options kv.RangeOptions) func(tx kv.Transaction) error {
	return reading(func(tx kv.Transaction) error {
		_, err := tx.GetRange(b(begin), b(end), options).Get()
		return err
	})
}

func setKey(key, value string) func(tx kv.Transaction) error {
	return func(tx kv.Transaction) error {
		tx.Set(b(key), b(value))
		return nil
	}
}
