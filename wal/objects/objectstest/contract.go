// Package objectstest tests object stores, and what is built on them: a contract suite that every store must pass, a store in memory with
// faults, S3 servers in process, and an HTTP proxy with faults.
package objectstest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/wal/objects"
)

// Options tell the suite what an opened store claims.
type Options struct {
	// AtomicPutIfAbsent: of racing conditional writers exactly one wins. The race is not run on a store that does not claim it.
	AtomicPutIfAbsent bool
	// Large is the size of the large object; 64 MiB when 0.
	Large int
	// Folders: the store refuses a key that is a folder of another.
	Folders bool
}

// Run runs the contract suite. open gives an empty store for each test and closes it when the test ends.
func Run(t *testing.T, open func(t *testing.T) objects.Store, options Options) {
	if options.Large == 0 {
		options.Large = 64 << 20
	}
	tests := []struct {
		name string
		run  func(t *testing.T, store objects.Store)
	}{
		{"an absent object is not found", testAbsent},
		{"put writes and overwrites", testPut},
		{"put if absent keeps what is there", testPutIfAbsent},
		{"ranges", testRanges},
		{"tails", testTails},
		{"the limit of a whole read", testGetAllLimit},
		{"empty objects", testEmpty},
		{"delete", testDelete},
		{"delete of many", testDeleteMany},
		{"list", testList},
		{"list in pages", testListPages},
		{"list while objects are deleted", testListWhileDeleting},
		{"bad keys", testBadKeys},
		{"odd keys", testOddKeys},
		{"an ended context", testEndedContext},
		{"bodies belong to their callers", testBodies},
		{"objects are never seen in part", testNeverInPart},
		{"the URL names the store", testString},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
	t.Run("a large object", func(t *testing.T) { testLarge(t, open(t), options.Large) })
	t.Run("racing conditional writers", func(t *testing.T) {
		if !options.AtomicPutIfAbsent {
			t.Skip("this store does not claim that its conditional writes are atomic (for a real server: export " + atomicVariable + "=true)")
		}
		testRace(t, open(t))
	})
	if options.Folders {
		t.Run("no key is a folder of another", func(t *testing.T) { testFolders(t, open(t)) })
	}
}

func testAbsent(t *testing.T, store objects.Store) {
	ctx := t.Context()
	for _, key := range []string{"none", "wal/none/0"} {
		_, err := store.Get(ctx, key, 0, 1)
		require.ErrorIs(t, err, objects.ErrNotFound)
		_, err = store.Get(ctx, key, 0, 0)
		require.ErrorIs(t, err, objects.ErrNotFound)
		_, err = store.GetAll(ctx, key, 1)
		require.ErrorIs(t, err, objects.ErrNotFound)
		_, _, err = store.GetTail(ctx, key, 1)
		require.ErrorIs(t, err, objects.ErrNotFound)
		_, err = store.Head(ctx, key)
		require.ErrorIs(t, err, objects.ErrNotFound)
		require.ErrorContains(t, err, key, "an error names the object")
	}
}

func testPut(t *testing.T, store objects.Store) {
	ctx := t.Context()
	before := time.Now().Add(-time.Minute)
	for _, body := range []string{"first", "the second, longer", "3"} {
		require.NoError(t, store.Put(ctx, "a/b/c", []byte(body)))
		got, err := store.GetAll(ctx, "a/b/c", 100)
		require.NoError(t, err)
		require.Equal(t, body, string(got))
		info, err := store.Head(ctx, "a/b/c")
		require.NoError(t, err)
		require.Equal(t, "a/b/c", info.Key)
		require.EqualValues(t, len(body), info.Size)
		require.True(t, info.Modified.After(before), "modified %s", info.Modified)
	}
}

func testPutIfAbsent(t *testing.T, store objects.Store) {
	ctx := t.Context()
	require.NoError(t, store.PutIfAbsent(ctx, "seg/1", []byte("one")))
	for range 3 {
		err := store.PutIfAbsent(ctx, "seg/1", []byte("another"))
		require.ErrorIs(t, err, objects.ErrExists)
	}
	require.Equal(t, "one", read(t, store, "seg/1"))

	require.NoError(t, store.Put(ctx, "seg/2", []byte("put")))
	require.ErrorIs(t, store.PutIfAbsent(ctx, "seg/2", []byte("put")), objects.ErrExists, "also for the same bytes")
	require.NoError(t, store.Delete(ctx, "seg/2"))
	require.NoError(t, store.PutIfAbsent(ctx, "seg/2", nil), "a deleted key is free")
	require.ErrorIs(t, store.PutIfAbsent(ctx, "seg/2", []byte("x")), objects.ErrExists, "an empty object is an object")
	require.Equal(t, "", read(t, store, "seg/2"))
}

func testRanges(t *testing.T, store objects.Store) {
	ctx := t.Context()
	const size = 1000
	body := randomBody(size)
	require.NoError(t, store.Put(ctx, "r", body))
	good := [][2]int64{{0, 1}, {0, size}, {1, size - 1}, {size - 1, 1}, {499, 2}, {0, 0}, {500, 0}, {size, 0}}
	for _, r := range good {
		got, err := store.Get(ctx, "r", r[0], r[1])
		require.NoError(t, err, "%v", r)
		require.Equal(t, body[r[0]:r[0]+r[1]], append([]byte{}, got...), "%v", r)
	}
	const huge = int64(1) << 62
	bad := [][2]int64{{0, size + 1}, {1, size}, {size - 1, 2}, {size, 1}, {size + 1, 0}, {size + 1, 1}, {-1, 1}, {0, -1}, {-1, 0}, {huge, 1}, {0, huge}, {huge, huge}}
	for _, r := range bad {
		_, err := store.Get(ctx, "r", r[0], r[1])
		require.ErrorIs(t, err, objects.ErrRange, "%v", r)
	}
}

func testTails(t *testing.T, store objects.Store) {
	ctx := t.Context()
	body := randomBody(100)
	require.NoError(t, store.Put(ctx, "t", body))
	for _, length := range []int64{0, 1, 50, 99, 100, 101, 1 << 40} {
		tail, size, err := store.GetTail(ctx, "t", length)
		require.NoError(t, err, "%d", length)
		require.EqualValues(t, 100, size)
		require.True(t, bytes.Equal(body[100-min(100, length):], tail), "%d", length)
	}
	_, _, err := store.GetTail(ctx, "t", -1)
	require.ErrorIs(t, err, objects.ErrRange)
}

func testGetAllLimit(t *testing.T, store objects.Store) {
	ctx := t.Context()
	require.NoError(t, store.Put(ctx, "l", randomBody(10)))
	for limit, fits := range map[int64]bool{10: true, 11: true, 1 << 50: true, 9: false, 0: false, -1: false} {
		body, err := store.GetAll(ctx, "l", limit)
		if fits {
			require.NoError(t, err, "%d", limit)
			require.Len(t, body, 10)
		} else {
			require.ErrorIs(t, err, objects.ErrRange, "%d", limit)
		}
	}
}

func testEmpty(t *testing.T, store objects.Store) {
	ctx := t.Context()
	require.NoError(t, store.Put(ctx, "e/put", nil))
	require.NoError(t, store.PutIfAbsent(ctx, "e/absent", []byte{}))
	for _, key := range []string{"e/put", "e/absent"} {
		require.Equal(t, "", read(t, store, key))
		body, err := store.GetAll(ctx, key, 0)
		require.NoError(t, err)
		require.Empty(t, body)
		body, err = store.Get(ctx, key, 0, 0)
		require.NoError(t, err)
		require.Empty(t, body)
		_, err = store.Get(ctx, key, 0, 1)
		require.ErrorIs(t, err, objects.ErrRange)
		tail, size, err := store.GetTail(ctx, key, 10)
		require.NoError(t, err)
		require.Empty(t, tail)
		require.Zero(t, size)
		info, err := store.Head(ctx, key)
		require.NoError(t, err)
		require.Zero(t, info.Size)
	}
	require.Equal(t, []string{"e/absent", "e/put"}, list(t, store, "", "", 10))
}

func testDelete(t *testing.T, store objects.Store) {
	ctx := t.Context()
	require.NoError(t, store.Delete(ctx), "of nothing")
	require.NoError(t, store.Delete(ctx, "none"))
	require.NoError(t, store.Delete(ctx, "none/at/all", "neither"))
	put(t, store, "d/a", "d/b", "d/c")
	require.NoError(t, store.Delete(ctx, "d/a", "none", "d/c", "d/a"))
	require.Equal(t, []string{"d/b"}, list(t, store, "", "", 10))
	_, err := store.Head(ctx, "d/a")
	require.ErrorIs(t, err, objects.ErrNotFound)
	require.NoError(t, store.Delete(ctx, "d/b"))
	require.Empty(t, list(t, store, "", "", 10))
	put(t, store, "d") // the folder is gone with its last object
	require.Equal(t, "d", read(t, store, "d"))
}

// testDeleteMany passes the thousand that S3 takes in one request.
func testDeleteMany(t *testing.T, store objects.Store) {
	ctx := t.Context()
	put(t, store, "keep", "many/0000", "many/0999", "many/1000", "many/2099")
	keys := make([]string, 2100)
	for i := range keys {
		keys[i] = fmt.Sprintf("many/%04d", i)
	}
	require.NoError(t, store.Delete(ctx, keys...))
	require.Equal(t, []string{"keep"}, list(t, store, "", "", 10))
}

func testList(t *testing.T, store objects.Store) {
	keys := []string{"a", "a-b/x", "a.b/x", "a0", "b/1", "b/10", "b/2", "b/2-", "b/3/x", "b/3/y", "ba", "c/d/e/f"}
	put(t, store, keys...)
	slices.Sort(keys)
	require.Equal(t, keys, list(t, store, "", "", 100))

	startAfters := []string{"", "!", "a", "a-b/x", "a-c", "b", "b/", "b/2", "b/3/x", "b/3~", "c/d/e/f", "zz"}
	prefixes := []string{"", "a", "a-", "b/", "b/1", "b/3", "b/3/x", "c/d/e/fx", "none/", "."}
	for _, prefix := range prefixes {
		for _, after := range startAfters {
			var want []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) && key > after {
					want = append(want, key)
				}
			}
			for _, limit := range []int{2, 100} {
				got := list(t, store, prefix, after, limit)
				require.Equal(t, want[:min(limit, len(want))], got[:len(got):len(got)], "prefix %q after %q limit %d", prefix, after, limit)
			}
		}
	}
	infos, err := store.List(t.Context(), "b/10", "", 5)
	require.NoError(t, err)
	require.Len(t, infos, 1)
	require.EqualValues(t, len("b/10"), infos[0].Size)
	require.WithinDuration(t, time.Now(), infos[0].Modified, time.Minute)
	infos, err = store.List(t.Context(), "", "", 0)
	require.NoError(t, err)
	require.Empty(t, infos)
}

// testListPages passes the thousand keys that S3 gives in one answer.
func testListPages(t *testing.T, store objects.Store) {
	var keys []string
	for i := range 1050 {
		keys = append(keys, fmt.Sprintf("p/%d/%04d", i%3, i))
	}
	put(t, store, keys...)
	slices.Sort(keys)
	require.Equal(t, keys, list(t, store, "p/", "", 2000), "one call gives more than a page of the store")
	for _, page := range []int{100, 1000, 1050} {
		var got []string
		after := ""
		for {
			part := list(t, store, "p/", after, page)
			got = append(got, part...)
			if len(part) < page {
				break
			}
			after = part[len(part)-1]
		}
		require.Equal(t, keys, got, "pages of %d", page)
	}
}

func testListWhileDeleting(t *testing.T, store objects.Store) {
	ctx := t.Context()
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprintf("x/%d/%02d", i/20, i))
	}
	put(t, store, keys...)
	var got []string
	after := ""
	for {
		part := list(t, store, "x/", after, 7)
		got = append(got, part...)
		if len(part) < 7 {
			break
		}
		after = part[len(part)-1]
		require.NoError(t, store.Delete(ctx, part...), "the page and the place that the next begins at")
	}
	require.Equal(t, keys, got)
	require.Len(t, list(t, store, "x/", "", 100), len(keys)%7)

	done := make(chan error, 1)
	go func() { done <- store.Delete(ctx, keys...) }()
	for range 10 {
		_, err := store.List(ctx, "x/", "", 100)
		require.NoError(t, err, "objects that vanish meanwhile are no error")
	}
	require.NoError(t, <-done)
}

func badKeys() []string {
	return []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a/../b", "a b", "a\x00", "ä", "a\\b", "a~", "a%2f", "a\n", "a?b", "a#b", "a+b", "a:b",
		strings.Repeat("a/", 256) + "a", strings.Repeat("a", 256),
	}
}

func testBadKeys(t *testing.T, store objects.Store) {
	ctx := t.Context()
	for _, key := range badKeys() {
		require.ErrorIs(t, store.Put(ctx, key, nil), objects.ErrKey, "%q", key)
		require.ErrorIs(t, store.PutIfAbsent(ctx, key, nil), objects.ErrKey, "%q", key)
		_, err := store.Get(ctx, key, 0, 1)
		require.ErrorIs(t, err, objects.ErrKey, "%q", key)
		_, err = store.GetAll(ctx, key, 1)
		require.ErrorIs(t, err, objects.ErrKey, "%q", key)
		_, _, err = store.GetTail(ctx, key, 1)
		require.ErrorIs(t, err, objects.ErrKey, "%q", key)
		_, err = store.Head(ctx, key)
		require.ErrorIs(t, err, objects.ErrKey, "%q", key)
		require.ErrorIs(t, store.Delete(ctx, key), objects.ErrKey, "%q", key)
	}
	for _, prefix := range []string{"/", "a//", "../", "a/../b", "a b", "ä", strings.Repeat("a", 513)} {
		_, err := store.List(ctx, prefix, "", 1)
		require.ErrorIs(t, err, objects.ErrKey, "%q", prefix)
	}
}

func testOddKeys(t *testing.T, store objects.Store) {
	longest := strings.Repeat(strings.Repeat("k", 127)+"/", 3) + strings.Repeat("k", 128)
	keys := []string{"-", "_", "...", "..a", "a..", ".a", "a/...", "--/-", "0", "A", "B/..b", strings.Repeat("w", 255), longest}
	put(t, store, keys...)
	for _, key := range keys {
		require.Equal(t, key, read(t, store, key))
	}
	slices.Sort(keys)
	require.Equal(t, keys, list(t, store, "", "", 100))
	require.NoError(t, store.Delete(t.Context(), keys...))
	require.Empty(t, list(t, store, "", "", 100))
}

func testEndedContext(t *testing.T, store objects.Store) {
	put(t, store, "c")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, store.Put(ctx, "c", []byte("x")), context.Canceled)
	require.ErrorIs(t, store.PutIfAbsent(ctx, "c2", nil), context.Canceled)
	_, err := store.Get(ctx, "c", 0, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = store.GetAll(ctx, "c", 1)
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = store.GetTail(ctx, "c", 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = store.Head(ctx, "c")
	require.ErrorIs(t, err, context.Canceled)
	_, err = store.List(ctx, "", "", 1)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, store.Delete(ctx, "c"), context.Canceled)
	require.Equal(t, []string{"c"}, list(t, store, "", "", 10))
	require.Equal(t, "c", read(t, store, "c"))
}

func testBodies(t *testing.T, store objects.Store) {
	ctx := t.Context()
	body := []byte("mine")
	require.NoError(t, store.Put(ctx, "b", body))
	require.NoError(t, store.PutIfAbsent(ctx, "b2", body))
	copy(body, "XXXX")
	for _, key := range []string{"b", "b2"} {
		got, err := store.GetAll(ctx, key, 10)
		require.NoError(t, err)
		require.Equal(t, "mine", string(got))
		copy(got, "YYYY")
		require.Equal(t, "mine", read(t, store, key))
	}
}

func testString(t *testing.T, store objects.Store) {
	require.Contains(t, store.String(), "://")
}

func testLarge(t *testing.T, store objects.Store, size int) {
	ctx := t.Context()
	body := randomBody(size)
	n := int64(size)
	require.NoError(t, store.PutIfAbsent(ctx, "large/1", body))
	require.ErrorIs(t, store.PutIfAbsent(ctx, "large/1", body[:10]), objects.ErrExists)
	got, err := store.GetAll(ctx, "large/1", n)
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, got))
	_, err = store.GetAll(ctx, "large/1", n-1)
	require.ErrorIs(t, err, objects.ErrRange)
	got, err = store.Get(ctx, "large/1", n/2-5, 10)
	require.NoError(t, err)
	require.Equal(t, body[n/2-5:n/2+5], got)
	tail, whole, err := store.GetTail(ctx, "large/1", 1<<20)
	require.NoError(t, err)
	require.Equal(t, n, whole)
	require.True(t, bytes.Equal(body[n-min(n, 1<<20):], tail))
	require.NoError(t, store.Put(ctx, "large/1", body[:n-1]))
	info, err := store.Head(ctx, "large/1")
	require.NoError(t, err)
	require.Equal(t, n-1, info.Size)
}

func testFolders(t *testing.T, store objects.Store) {
	ctx := t.Context()
	put(t, store, "f/g/h", "o")
	for _, key := range []string{"f", "f/g", "o/x", "o/x/y"} {
		require.ErrorIs(t, store.Put(ctx, key, nil), objects.ErrKey, key)
		require.ErrorIs(t, store.PutIfAbsent(ctx, key, nil), objects.ErrKey, key)
	}
	for _, key := range []string{"f", "f/g", "o/x", "o/x/y"} {
		_, err := store.Head(ctx, key)
		require.ErrorIs(t, err, objects.ErrNotFound, key)
		_, err = store.GetAll(ctx, key, 10)
		require.ErrorIs(t, err, objects.ErrNotFound, key)
		require.NoError(t, store.Delete(ctx, key), key)
	}
	require.Equal(t, []string{"f/g/h", "o"}, list(t, store, "", "", 10))
}

// put writes objects whose bodies are their keys.
func put(t *testing.T, store objects.Store, keys ...string) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for _, key := range keys {
		group.Go(func() error { return store.Put(ctx, key, []byte(key)) })
	}
	require.NoError(t, group.Wait())
}

func read(t *testing.T, store objects.Store, key string) string {
	t.Helper()
	body, err := store.GetAll(t.Context(), key, 1<<20)
	require.NoError(t, err)
	return string(body)
}

func list(t *testing.T, store objects.Store, prefix, after string, limit int) []string {
	t.Helper()
	infos, err := store.List(t.Context(), prefix, after, limit)
	require.NoError(t, err)
	var keys []string
	for _, info := range infos {
		keys = append(keys, info.Key)
	}
	return keys
}

func randomBody(size int) []byte {
	body := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(body) // never fails
	return body
}
