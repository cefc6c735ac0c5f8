package objectstest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFakeKeepsTheContract(t *testing.T) {
	objectstest.Run(t, func(*testing.T) objects.Store { return objectstest.NewFake() },
		objectstest.Options{AtomicPutIfAbsent: true, Folders: true})
}

func TestFakeFaultsAreReplayable(t *testing.T) {
	run := func() (outcomes []string) {
		store := objectstest.NewFake()
		store.SetFaults(objectstest.Faults{Seed: 7, All: objectstest.Rates{Err: 0.3, ErrAfter: 0.3, ShortRead: 0.2, CorruptRead: 0.2}})
		for range 100 {
			err := store.Put(t.Context(), "k", []byte("0123456789"))
			body, readErr := store.GetAll(t.Context(), "k", 100)
			outcomes = append(outcomes, fmt.Sprint(err, string(body), readErr))
		}
		return outcomes
	}
	first := run()
	require.Equal(t, first, run())
	all := strings.Join(first, "\n")
	require.Contains(t, all, objectstest.ErrInjected.Error())
	require.Contains(t, all, objectstest.ErrTimedOut.Error())
	require.Greater(t, len(slices.Compact(slices.Sorted(slices.Values(first)))), 5)
}

func TestFakeErrorsBeforeAndAfterTheEffect(t *testing.T) {
	store := objectstest.NewFake()
	store.SetFaults(objectstest.Faults{Ops: map[string]objectstest.Rates{objects.OpPutIfAbsent: {Err: 1}}})
	require.ErrorIs(t, store.PutIfAbsent(t.Context(), "k", nil), objectstest.ErrInjected)
	require.Empty(t, store.Keys())
	require.NoError(t, store.Put(t.Context(), "k", []byte("other operations are not named")))
	store.SetFaults(objectstest.Faults{All: objectstest.Rates{ErrAfter: 1}})
	require.ErrorIs(t, store.PutIfAbsent(t.Context(), "k2", nil), objectstest.ErrTimedOut)
	require.Equal(t, []string{"k", "k2"}, store.Keys())
	require.ErrorIs(t, store.Delete(t.Context(), "k"), objectstest.ErrTimedOut)
	require.Equal(t, []string{"k2"}, store.Keys())
}

func TestFakeWritesThatLandLate(t *testing.T) {
	store := objectstest.NewFake()
	store.SetFaults(objectstest.Faults{All: objectstest.Rates{Late: 1}})
	require.ErrorIs(t, store.PutIfAbsent(t.Context(), "k", []byte("late")), objectstest.ErrTimedOut)
	require.ErrorIs(t, store.PutIfAbsent(t.Context(), "k2", []byte("late")), objectstest.ErrTimedOut)
	require.Equal(t, 2, store.Late())
	store.SetFaults(objectstest.Faults{})
	require.NoError(t, store.PutIfAbsent(t.Context(), "k", []byte("seal")))
	require.Equal(t, 1, store.LandLate(), "the condition is checked when it lands")
	body, _ := store.Body("k")
	require.Equal(t, "seal", string(body))
	require.Equal(t, []string{"k", "k2"}, store.Keys())
	require.Zero(t, store.Late())
}

func TestFakeOutageStallAndEverySecond(t *testing.T) {
	store := objectstest.NewFake()
	store.SetOutage(true)
	require.ErrorIs(t, store.Put(t.Context(), "k", nil), objectstest.ErrOutage)
	store.SetOutage(false)
	require.NoError(t, store.Put(t.Context(), "k", nil))

	store.SetFaults(objectstest.Faults{All: objectstest.Rates{Every2nd: true}})
	for range 3 {
		require.NoError(t, store.Put(t.Context(), "k", nil))
		require.ErrorIs(t, store.Put(t.Context(), "k", nil), objectstest.ErrSlowDown)
	}
	synctest.Test(t, func(t *testing.T) {
		store.SetFaults(objectstest.Faults{All: objectstest.Rates{Stall: 1}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, store.Put(ctx, "k", nil), context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(start))
		store.SetFaults(objectstest.Faults{All: objectstest.Rates{Delay: time.Hour}})
		require.NoError(t, store.Put(t.Context(), "k", nil))
		require.Greater(t, time.Since(start), time.Hour)
	})
}

func TestFakeDamage(t *testing.T) {
	store := objectstest.NewFake()
	store.Set("k", []byte("0123456789"))
	require.NoError(t, store.CorruptAt("k", 3))
	require.NoError(t, store.CorruptAt("k", -1))
	body, err := store.GetAll(t.Context(), "k", 10)
	require.NoError(t, err)
	require.Equal(t, "012\xcc45678\xc6", string(body))
	require.NoError(t, store.Truncate("k", 2))
	body, err = store.GetAll(t.Context(), "k", 10)
	require.NoError(t, err)
	require.Equal(t, "01", string(body))
	require.ErrorIs(t, store.CorruptAt("k", 2), objects.ErrRange)
	require.ErrorIs(t, store.CorruptAt("none", 0), objects.ErrNotFound)
	store.Remove("k", "none")
	require.Empty(t, store.Keys())
}

func TestFakeHooksAndCounters(t *testing.T) {
	store := objectstest.NewFake()
	boom := errors.New("boom")
	store.Before(func(_ context.Context, op, key string) error {
		if op == objects.OpPut && key == "bad" {
			return boom
		}
		return nil
	})
	require.ErrorIs(t, store.Put(t.Context(), "bad", nil), boom)
	require.NoError(t, store.Put(t.Context(), "good", []byte("12345")))
	_, err := store.Get(t.Context(), "good", 1, 2)
	require.NoError(t, err)
	require.Equal(t, objectstest.Counter{Calls: 2, Errors: 1, Bytes: 5}, store.Counter(objects.OpPut))
	require.Equal(t, objectstest.Counter{Calls: 1, Bytes: 2}, store.Counter(objects.OpGet))
	require.EqualValues(t, 3, store.Calls())
	store.Before(nil)
	store.ResetCounters()
	require.Zero(t, store.Calls())
	require.NoError(t, store.Put(t.Context(), "bad", nil))
}

func TestFakeModes(t *testing.T) {
	store := objectstest.NewFake()
	store.SetPutIfAbsent(objectstest.Unsupported)
	require.ErrorIs(t, store.PutIfAbsent(t.Context(), "k", nil), objects.ErrUnsupported)
	store.SetPutIfAbsent(objectstest.Ignored)
	require.NoError(t, store.PutIfAbsent(t.Context(), "k", nil))
	require.NoError(t, store.PutIfAbsent(t.Context(), "k", []byte("over it")))
	store.SetPutIfAbsent(objectstest.Racy)
	require.ErrorIs(t, store.PutIfAbsent(t.Context(), "k", nil), objects.ErrExists)
	synctest.Test(t, func(t *testing.T) {
		errs := make([]error, 2)
		var group sync.WaitGroup
		for i := range errs {
			group.Go(func() { errs[i] = store.PutIfAbsent(t.Context(), "raced", []byte{byte(i)}) })
		}
		group.Wait()
		require.NoError(t, errors.Join(errs...), "both win")
	})
}

func TestFakeNoticesAChangedBody(t *testing.T) {
	store := objectstest.NewFake()
	body := []byte("mine")
	store.Before(func(context.Context, string, string) error {
		body[0] = 'X' // as a caller that reuses its buffer too early
		return nil
	})
	require.ErrorContains(t, store.Put(t.Context(), "k", body), "changed while it was being put")
}
