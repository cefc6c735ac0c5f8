package dir_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/dir"
)

func openAt(t testing.TB, path string) *dir.Store {
	t.Helper()
	store, err := dir.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// temps lists the temporary files.
func temps(t *testing.T, root string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "+tmp"))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestStaleTemporaryFilesAreSwept(t *testing.T) {
	root := t.TempDir()
	store := openAt(t, root)
	require.NoError(t, store.Put(t.Context(), "a/b", []byte("x")))
	require.Empty(t, temps(t, root), "a write leaves none")
	stale, fresh := filepath.Join(root, "+tmp", "STALE"), filepath.Join(root, "+tmp", "FRESH")
	for _, path := range []string{stale, fresh} {
		require.NoError(t, os.WriteFile(path, []byte("half of an obj"), 0o600))
	}
	old := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(stale, old, old))

	again := openAt(t, root)
	require.Equal(t, []string{"FRESH"}, temps(t, root), "one that a living process may be writing stays")
	infos, err := again.List(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.Len(t, infos, 1, "and is no object")
}

// What is not ours in the directory is neither listed nor read nor in the way.
func TestForeignFiles(t *testing.T) {
	root := t.TempDir()
	store := openAt(t, root)
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(root, "lost+found"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "a b"), nil, 0o600))
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	infos, err := store.List(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.Empty(t, infos)
	for _, key := range []string{"link", "pipe"} {
		_, err = store.Head(t.Context(), key)
		require.ErrorIs(t, err, objects.ErrNotFound, key)
		_, err = store.GetAll(t.Context(), key, 100)
		require.ErrorIs(t, err, objects.ErrNotFound, key)
	}
}

func TestADirectoryThatVanished(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	store := openAt(t, root)
	require.NoError(t, os.RemoveAll(root))
	require.ErrorIs(t, store.Put(t.Context(), "a", nil), objects.ErrNoBucket)
	require.ErrorIs(t, store.PutIfAbsent(t.Context(), "a/b/c", nil), objects.ErrNoBucket)
	_, err := store.List(t.Context(), "", "", 1)
	require.ErrorIs(t, err, objects.ErrNoBucket)
	require.ErrorIs(t, objects.CheckAccess(t.Context(), store), objects.ErrNoBucket)
	require.NoDirExists(t, root, "it is not made up")
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := dir.Open(file)
	require.ErrorContains(t, err, file)
	_, err = dir.Open(filepath.Join(file, "below"))
	require.ErrorContains(t, err, file)
}

// TestFoldersComeAndGo: writers of two stores on one directory (as two processes are) while others remove the folders they write into.
func TestFoldersComeAndGo(t *testing.T) {
	root := t.TempDir()
	stores := []*dir.Store{openAt(t, root), openAt(t, root)}
	group, ctx := errgroup.WithContext(t.Context())
	for w := range 6 {
		store := stores[w%2]
		group.Go(func() error {
			for i := range 60 {
				key := fmt.Sprintf("x/%d/y/%d", i%3, w)
				if err := store.PutIfAbsent(ctx, key, []byte(key)); err != nil {
					return err
				}
				body, err := store.GetAll(ctx, key, 100)
				if err != nil || string(body) != key {
					return fmt.Errorf("read %q back: %q, %w", key, body, err)
				}
				if err := store.Delete(ctx, key); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no folder is left but +tmp")
}

// TestRaceBetweenStores is the race of the contract, between two stores on one directory.
func TestRaceBetweenStores(t *testing.T) {
	root := t.TempDir()
	stores := []*dir.Store{openAt(t, root), openAt(t, root)}
	for round := range 20 {
		key := fmt.Sprintf("race/%d", round)
		errs := make([]error, 6)
		var group sync.WaitGroup
		for w := range errs {
			group.Go(func() { errs[w] = stores[w%2].PutIfAbsent(t.Context(), key, []byte{byte(w)}) })
		}
		group.Wait()
		body, err := stores[0].GetAll(t.Context(), key, 10)
		require.NoError(t, err)
		for w, err := range errs {
			if w == int(body[0]) {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, objects.ErrExists)
			}
		}
	}
}

// More folders than are kept open, in use at once.
func TestManyFolders(t *testing.T) {
	store := open(t)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range 600 {
		group.Go(func() error { return store.Put(ctx, fmt.Sprintf("%03d/o", i), nil) })
	}
	require.NoError(t, group.Wait())
	infos, err := store.List(t.Context(), "", "", 1000)
	require.NoError(t, err)
	require.Len(t, infos, 600)
}

// A write whose context ends in the middle leaves nothing.
func TestAWriteThatIsGivenUp(t *testing.T) {
	root := t.TempDir()
	store := openAt(t, root)
	ctx := &endsLater{Context: t.Context(), after: 3}
	err := store.Put(ctx, "a/b", bytes.Repeat([]byte("x"), 32<<20))
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, temps(t, root))
	_, err = store.Head(t.Context(), "a/b")
	require.ErrorIs(t, err, objects.ErrNotFound)
}

// endsLater is a context that ends when it has been looked at a number of times.
type endsLater struct {
	context.Context
	after int
}

func (c *endsLater) Err() error {
	c.after--
	if c.after < 0 {
		return context.Canceled
	}
	return nil
}

func TestWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere; run the test as another user")
	}
	root := t.TempDir()
	store := openAt(t, root)
	require.NoError(t, os.Chmod(filepath.Join(root, "+tmp"), 0o500))
	require.ErrorIs(t, objects.CheckAccess(t.Context(), store), objects.ErrDenied)
	require.NoError(t, os.Chmod(filepath.Join(root, "+tmp"), 0o700))
}

func TestErrorsNameTheStore(t *testing.T) {
	store := open(t)
	_, err := store.Head(t.Context(), "k")
	require.ErrorContains(t, err, store.String())
	require.ErrorContains(t, err, `"k"`)
}
