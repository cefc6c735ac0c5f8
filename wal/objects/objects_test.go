package objects_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProbeSeesThroughEveryMode(t *testing.T) {
	for _, test := range []struct {
		mode   objectstest.PutIfAbsentMode
		reason string // "" for atomic
	}{
		{objectstest.Atomic, ""},
		{objectstest.Racy, "racing writers were told"},
		{objectstest.Ignored, "racing writers were told"},
		{objectstest.Unsupported, "does not support"},
	} {
		store := objectstest.NewFake()
		store.SetPutIfAbsent(test.mode)
		got, err := objects.Probe(t.Context(), store, "cluster/probe", 5, 4)
		require.NoError(t, err)
		require.Equal(t, test.reason == "", got.Atomic, "mode %d: %s", test.mode, got.Reason)
		require.Contains(t, got.Reason, test.reason)
		require.Empty(t, store.Keys(), "the probe cleans up")
	}
}

func TestProbeOfOneWriterSeesAnIgnoredCondition(t *testing.T) {
	store := objectstest.NewFake()
	store.SetPutIfAbsent(objectstest.Ignored)
	got, err := objects.Probe(t.Context(), store, "p", 1, 1)
	require.NoError(t, err)
	require.Equal(t, "a conditional write to an object that was there was not refused", got.Reason)
}

func TestProbeSeesAWriteThatWasRefusedAndHappened(t *testing.T) {
	store := objectstest.NewFake()
	store.After(func(_ context.Context, op, key string) error {
		if op == objects.OpPutIfAbsent {
			store.Set(key, []byte("somebody else's"))
		}
		return nil
	})
	got, err := objects.Probe(t.Context(), store, "p", 1, 2)
	require.NoError(t, err)
	require.False(t, got.Atomic)
	require.Contains(t, got.Reason, "bytes")
}

func TestProbeOfAStoreThatVanishesItsObjects(t *testing.T) {
	store := objectstest.NewFake()
	store.After(func(_ context.Context, op, key string) error {
		if op == objects.OpPutIfAbsent {
			store.Remove(key)
		}
		return nil
	})
	got, err := objects.Probe(t.Context(), store, "p", 1, 1)
	require.NoError(t, err)
	require.Contains(t, got.Reason, "not there afterwards")
}

// A store that sends a request again of itself tells the winner that the object exists.
func TestProbeWithoutAKnownWinner(t *testing.T) {
	store := objectstest.NewFake()
	store.After(func(_ context.Context, op, _ string) error {
		if op == objects.OpPutIfAbsent {
			return objects.ErrExists
		}
		return nil
	})
	got, err := objects.Probe(t.Context(), store, "p", 2, 3)
	require.NoError(t, err)
	require.True(t, got.Atomic, got.Reason)
}

func TestProbeFindsNothingOutInAnOutage(t *testing.T) {
	store := objectstest.NewFake()
	store.SetOutage(true)
	_, err := objects.Probe(t.Context(), store, "p", 2, 3)
	require.ErrorIs(t, err, objectstest.ErrOutage)
}

func TestProbeCleansUpAfterItsContext(t *testing.T) {
	store := objectstest.NewFake()
	ctx, cancel := context.WithCancel(t.Context())
	store.After(func(_ context.Context, op, _ string) error {
		if op == objects.OpPutIfAbsent {
			cancel()
		}
		return nil
	})
	_, err := objects.Probe(ctx, store, "p", 2, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, store.Keys())
}

func TestCheckAccessIsOneLine(t *testing.T) {
	store := objectstest.NewFake()
	require.NoError(t, objects.CheckAccess(t.Context(), store))
	store.SetOutage(true)
	err := objects.CheckAccess(t.Context(), store)
	require.ErrorIs(t, err, objectstest.ErrOutage)
	require.ErrorContains(t, err, "fake://")
	require.NotContains(t, err.Error(), "\n")
}

type recorder struct {
	ops    []string
	bytes  int
	errors int
}

func (r *recorder) Observe(op string, bytes int, d time.Duration, err error) {
	r.ops = append(r.ops, op)
	r.bytes += bytes
	if err != nil {
		r.errors++
	}
	if d < 0 {
		r.errors += 1000
	}
}

func TestObservedTellsEveryOperation(t *testing.T) {
	seen := &recorder{}
	fake := objectstest.NewFake()
	store := objects.Observed(fake, seen)
	ctx := t.Context()
	require.NoError(t, store.Put(ctx, "a", []byte("12345")))
	require.NoError(t, store.PutIfAbsent(ctx, "b", []byte("123")))
	_, err := store.Get(ctx, "a", 1, 2)
	require.NoError(t, err)
	_, err = store.GetAll(ctx, "a", 5)
	require.NoError(t, err)
	_, _, err = store.GetTail(ctx, "b", 1)
	require.NoError(t, err)
	_, err = store.Head(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, store.Delete(ctx, "a", "b"))
	_, err = store.List(ctx, "", "", 10)
	require.NoError(t, err)
	require.Equal(t, objects.Ops(), seen.ops)
	require.Equal(t, 5+3+2+5+1, seen.bytes)
	require.Zero(t, seen.errors)
	fake.SetOutage(true)
	require.Error(t, store.Put(ctx, "a", nil))
	require.Equal(t, 1, seen.errors)
	require.Equal(t, fake.String(), store.String())
	require.NoError(t, store.Close())
	require.ErrorIs(t, fake.Put(ctx, "a", nil), objectstest.ErrClosed)
}

func TestKeysSayWhatIsWrong(t *testing.T) {
	for key, want := range map[string]string{
		"":                       "empty",
		"a//b":                   "an empty part in",
		"a/../b":                 `a part ".."`,
		"a b":                    `byte 1 (' ')`,
		"ä":                      `byte 0`,
		strings.Repeat("x", 513): "513 bytes, at most 512",
		strings.Repeat("x", 256): "a part of 256 bytes, at most 255",
	} {
		err := objects.ValidateKey(key)
		require.ErrorIs(t, err, objects.ErrKey)
		require.ErrorContains(t, err, want)
		require.Less(t, len(err.Error()), 700)
	}
	require.NoError(t, objects.ValidateKey("Wal/0a_b-c.d/..."))
}

func FuzzValidateKey(f *testing.F) {
	for _, seed := range []string{"", "a", "a/b", "../x", "a//b", "a/.", "/", "ä", "a\x00", "...", strings.Repeat("a", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		err := objects.ValidateKey(key)
		if err != nil {
			require.ErrorIs(t, err, objects.ErrKey)
			return
		}
		require.LessOrEqual(t, len(key), objects.MaxKey)
		require.False(t, strings.HasPrefix(key, "/") || strings.HasSuffix(key, "/"))
		for part := range strings.SplitSeq(key, "/") {
			require.NotContains(t, []string{"", ".", ".."}, part)
			require.LessOrEqual(t, len(part), objects.MaxPart)
			require.NotContains(t, part, "\x00")
		}
		for i := range len(key) + 1 {
			require.NoError(t, objects.ValidatePrefix(key[:i]), "every beginning of a key is a prefix")
		}
	})
}

func TestSentinelsAreApart(t *testing.T) {
	all := []error{objects.ErrNotFound, objects.ErrExists, objects.ErrRange, objects.ErrDenied, objects.ErrKey, objects.ErrNoBucket, objects.ErrUnsupported}
	for i, a := range all {
		for j, b := range all {
			require.Equal(t, i == j, errors.Is(a, b))
		}
	}
}
