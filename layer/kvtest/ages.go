package kvtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

func ageChecks() []check {
	return []check{
		{"age/reads of an old transaction", oldReads},
		{"age/commit of an old transaction", oldCommit},
		{"age/a transaction that is not old", youngTransaction},
	}
}

// oldAge is more than the five seconds of a transaction. The versions of a cluster on which nothing happens lag by a few seconds, so
// what must fail at this age may do so a little later.
const oldAge = 8 * time.Second

// age lets d go by.
func (e *env) age(d time.Duration) {
	if clock, ok := e.whole.(Aging); ok {
		clock.Age(d)
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
	}
}

func oldReads(e *env) {
	e.set("a", "1")
	var gets, ranges []error
	e.read(func(tx kv.ReadTransaction) error {
		if _, err := tx.Get(b("a")).Get(); err != nil {
			return err
		}
		if len(gets) == 0 {
			e.age(oldAge)
		}
		_, err := tx.Get(b("b")).Get()
		for tries := 0; len(gets) == 0 && err == nil && tries < 8; tries++ {
			e.age(time.Second)
			_, err = tx.Get(fmt.Append(nil, "b", tries)).Get() // another key each time: a client remembers what it has read
		}
		gets = append(gets, err)
		_, rangeErr := tx.GetRange(b("b"), b("z"), kv.RangeOptions{}).Get()
		ranges = append(ranges, rangeErr)
		return errors.Join(err, rangeErr)
	})
	require.Greater(e, len(gets), 1, "it is run again")
	requireTooOld(e, gets[0], "get")
	requireTooOld(e, ranges[0], "range")
	require.NoError(e, gets[len(gets)-1])
	require.NoError(e, ranges[len(ranges)-1])
}

// requireTooOld allows for a client that times the attempt out by itself.
func requireTooOld(e *env, err error, what string) {
	e.Helper()
	require.True(e, errors.Is(err, kv.ErrTooOld) || errors.Is(err, kv.ErrUnavailable), "%s: %v", what, err)
}

func oldCommit(e *env) {
	e.set("a", "1")
	runs := 0
	e.do(func(tx kv.Transaction) error {
		runs++
		if _, err := tx.Get(b("a")).Get(); err != nil {
			return err
		}
		tx.Set(b("b"), b("2"))
		if runs == 1 {
			e.age(oldAge)
		}
		return nil
	})
	require.Greater(e, runs, 1, "what it read cannot be checked any more")
	require.Equal(e, b("2"), e.get("b"))
}

func youngTransaction(e *env) {
	e.set("a", "1")
	// Not every time: a cluster may move its versions in a jump.
	for range 5 {
		runs := 0
		e.do(func(tx kv.Transaction) error {
			runs++
			if _, err := tx.Get(b("a")).Get(); err != nil {
				return err
			}
			e.age(2 * time.Second)
			if _, err := tx.Get(b("b")).Get(); err != nil {
				return err
			}
			tx.Set(b("c"), b("3"))
			return nil
		})
		if runs == 1 {
			return
		}
	}
	e.Fatal("a transaction of two seconds was run again in each of 5 tries")
}
