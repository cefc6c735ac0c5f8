package dir_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/dir"
)

func TestAFullDisk(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small file system cannot be mounted (%v); run the test as root", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(root, 0)) })
	store, err := dir.Open(root)
	require.NoError(t, err)
	require.NoError(t, store.Put(t.Context(), "small", []byte("x")))
	for _, write := range []func(context.Context, string, []byte) error{store.Put, store.PutIfAbsent} {
		err := write(t.Context(), "a/large", make([]byte, 2<<20))
		require.ErrorIs(t, err, unix.ENOSPC)
		require.ErrorContains(t, err, "the disk is full")
		_, err = store.Head(t.Context(), "a/large")
		require.ErrorIs(t, err, objects.ErrNotFound)
	}
	require.Error(t, store.Put(t.Context(), "small", make([]byte, 2<<20)))
	body, err := store.GetAll(t.Context(), "small", 10)
	require.NoError(t, err)
	require.Equal(t, "x", string(body), "what was there stays")
	require.Empty(t, temps(t, root), "the space is given back")
	require.NoError(t, store.Put(t.Context(), "small", make([]byte, 512<<10)))
	require.NoError(t, store.Close())
}
