//go:build fdb

package fdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/varvedb/varve/layer/fdb/client"
	"github.com/varvedb/varve/layer/fdb/fdbtest"
	"github.com/varvedb/varve/layer/kv"
)

// fakeLibrary is the path of the fake libfdb_c, written by TestMain; empty when the tests use a real one.
var fakeLibrary string

// FakeLibrary is fakeLibrary for the tests of the package's outside.
func FakeLibrary() string { return fakeLibrary }

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if os.Getenv("VARVE_TEST_CLUSTER_FILE") != "" {
		if code := m.Run(); code != 0 {
			return code
		}
		return stopReal()
	}
	directory, err := os.MkdirTemp("", "varve-fdb")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	if fakeLibrary, err = fdbtest.BuildLibrary(directory, "libfdb_c.so"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := openWithoutLibrary(directory); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code := m.Run(); code != 0 {
		return code
	}
	return checkEnd()
}

// openWithoutLibrary opens a cluster with a library that is missing, which must be said and must not spoil what follows.
func openWithoutLibrary(directory string) error {
	file := filepath.Join(directory, "fdb.cluster")
	if err := os.WriteFile(file, []byte("d:i@127.0.0.1:4500"), 0o600); err != nil {
		return err
	}
	_, err := Open(context.Background(), Options{ClusterFile: file, Library: filepath.Join(directory, "none.so")})
	if !errors.Is(err, client.ErrMissing) {
		return fmt.Errorf("open without a library: want %q, got %v", client.ErrMissing, err)
	}
	return nil
}

// checkEnd stops the network, which a process can do once, and looks for goroutines that are left.
func checkEnd() int {
	for _, step := range []struct {
		what string
		err  error
	}{
		{"stop network", StopNetwork()},
		{"stop network again", StopNetwork()},
		{"open after the end", openStopped()},
		{"goroutines", goleak.Find()},
	} {
		if step.err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", step.what, step.err)
			return 1
		}
	}
	return 0
}

// stopReal is checkEnd for a real library.
func stopReal() int {
	if err := errors.Join(goleak.Find(fdbtest.IgnoreNetwork()), StopNetwork(), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, "end of the network:", err)
		return 1
	}
	return 0
}

func openStopped() error {
	_, _, err := process.open(Options{Library: fakeLibrary}.withDefaults())
	if !errors.Is(err, ErrNetworkStopped) {
		return fmt.Errorf("want %q, got %v", ErrNetworkStopped, err)
	}
	return nil
}

// openFake opens a new store of the fake library.
func openFake(t testing.TB, change ...func(*Options)) *Database {
	t.Helper()
	return openFakeAt(t, fdbtest.ClusterFile(t), change...)
}

func openFakeAt(t testing.TB, clusterFile string, change ...func(*Options)) *Database {
	t.Helper()
	if fakeLibrary == "" {
		t.Skip("needs the fake client library, and VARVE_TEST_CLUSTER_FILE asks for the real one: run `make test-fdb-fake` without it")
	}
	options := Options{Library: fakeLibrary, ClusterFile: clusterFile}
	for _, c := range change {
		c(&options)
	}
	db, err := Open(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Age lets d go by in the store of a fake database.
func Age(t testing.TB, db *Database, d time.Duration) {
	command(t, db, "advance %d", d.Microseconds())
}

// command gives the fake library a command, see client/testdata/fake_fdb_c.c.
func command(t testing.TB, db *Database, format string, arguments ...any) {
	t.Helper()
	require.NoError(t, db.engine.(*database).handle.Options().SetMachineId(fmt.Sprintf(format, arguments...)))
}

func attemptTimeout(d time.Duration) func(*Options) {
	return func(o *Options) { o.TransactionTimeout = d }
}

func set(t testing.TB, db *Database, key, value string) kv.Commit {
	t.Helper()
	commit, err := db.Transact(t.Context(), func(tr kv.Transaction) error {
		tr.Set([]byte(key), []byte(value))
		return nil
	})
	require.NoError(t, err)
	return commit
}

// get reads a key; an absent one is "<nil>".
func get(t testing.TB, db *Database, key string) string {
	t.Helper()
	var found string
	require.NoError(t, db.ReadTransact(t.Context(), func(tr kv.ReadTransaction) error {
		value, err := tr.Get([]byte(key)).Get()
		found = string(value)
		if value == nil {
			found = "<nil>"
		}
		return err
	}))
	return found
}
