//go:build fdb

package client_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/fdb/client"
	"github.com/varvedb/varve/layer/fdb/fdbtest"
)

// A process loads one library, so the steps of loading are one test: each failure leaves room for the next try.
func TestLoad(t *testing.T) {
	if client.Version() != "" {
		t.Skip("a process loads one library, and this one has: run it with -count=1")
	}
	directory := t.TempDir()
	build := func(name string, definitions ...string) string {
		library, err := fdbtest.BuildLibrary(directory, name, definitions...)
		require.NoError(t, err)
		return library
	}
	missing := filepath.Join(directory, "none.so")
	err := client.Load(missing)
	require.ErrorIs(t, err, client.ErrMissing)
	require.ErrorContains(t, err, "install foundationdb-clients 7.3 or newer")
	require.ErrorContains(t, err, missing)

	notALibrary := filepath.Join(directory, "text.so")
	require.NoError(t, os.WriteFile(notALibrary, []byte("text"), 0o600))
	require.ErrorIs(t, client.Load(notALibrary), client.ErrMissing)

	old := build("old.so", "FAKE_MAX_API_VERSION=710")
	err = client.Load(old)
	require.ErrorIs(t, err, client.ErrTooOld)
	require.ErrorContains(t, err, "supports API version 710, and 730 is needed")

	err = client.Load(build("incomplete.so", "FAKE_INCOMPLETE"))
	require.ErrorIs(t, err, client.ErrIncomplete)
	require.ErrorContains(t, err, "fdb_transaction_get_approximate_size")

	good := build("good.so")
	require.NoError(t, client.Load(good))
	require.NoError(t, client.Load(good), "the same again")
	require.Equal(t, "7.3.0", client.Version())

	err = client.Load(old)
	require.ErrorIs(t, err, client.ErrOtherPath)
	require.ErrorContains(t, err, "good.so")
}
