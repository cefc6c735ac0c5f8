package kvtest

import (
	"context"
	"crypto/rand"
	"os"
	"testing"
	"time"

	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/fdb"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/faults"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// Environment variables that make Open take a FoundationDB cluster. Tests must then be built with the tag fdb.
const (
	ClusterFileVariable = "VARVE_TEST_CLUSTER_FILE" // path of a cluster file
	LibraryVariable     = "VARVE_TEST_FDB_LIBRARY"  // path of libfdb_c; optional
)

// Open gives an empty database for one test: the embedded engine in memory, or a part of the FoundationDB cluster that
// VARVE_TEST_CLUSTER_FILE names, which is cleared afterwards. It is closed when the test ends.
func Open(t testing.TB) kv.Database {
	t.Helper()
	if clusterFile := os.Getenv(ClusterFileVariable); clusterFile != "" {
		return openCluster(t, clusterFile)
	}
	return OpenEmbedded(t, embedded.Options{})
}

// OpenOnDisk is Open with the embedded engine on disk, for benchmarks in which a commit should cost what it costs.
func OpenOnDisk(t testing.TB) kv.Database {
	t.Helper()
	if clusterFile := os.Getenv(ClusterFileVariable); clusterFile != "" {
		return openCluster(t, clusterFile)
	}
	db, err := embedded.Open(t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatalf("open the embedded engine: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// OpenEmbedded gives an empty embedded engine in memory, whatever the environment says.
func OpenEmbedded(t testing.TB, options embedded.Options) *embedded.DB {
	t.Helper()
	options.InMemory = true
	db, err := embedded.Open("", options)
	if err != nil {
		t.Fatalf("open the embedded engine: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the embedded engine: %v", err)
		}
	})
	return db
}

// OpenFaulty is Open with faults: a tenth of all runs conflict, are too old, or commit with an unknown outcome. Its rates can be changed,
// and its outages and hooks used, by its methods.
func OpenFaulty(t testing.TB, seed uint64) *faults.Database {
	t.Helper()
	t.Logf("faults have seed %d", seed)
	return faults.Wrap(Open(t), seed, faults.Rates{
		Conflict: 0.1, TooOld: 0.1, UnknownCommitted: 0.1, UnknownLost: 0.1,
		Delay: 0.1, MinDelay: 10 * time.Microsecond, MaxDelay: time.Millisecond,
	})
}

func openCluster(t testing.TB, clusterFile string) kv.Database {
	t.Helper()
	db, err := fdb.Open(t.Context(), fdb.Options{ClusterFile: clusterFile, Library: os.Getenv(LibraryVariable)})
	if err != nil {
		t.Fatalf("%s is set to %s, but the cluster cannot be used (tests against it are built with -tags fdb): %v", ClusterFileVariable, clusterFile, err)
	}
	prefixed := kv.Prefixed(db, Prefix())
	t.Cleanup(func() {
		// The context of the test has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := Empty(ctx, prefixed); err != nil {
			t.Errorf("clear what the test left in the cluster: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
	})
	return prefixed
}

// Prefix is a new random key prefix, a tuple.
func Prefix() []byte {
	return tuple.Tuple{"kvtest", rand.Text()}.Pack()
}

// Empty clears every row of db.
func Empty(ctx context.Context, db kv.Database) error {
	_, err := db.Transact(ctx, func(tx kv.Transaction) error {
		tx.ClearRange(nil, []byte{0xff})
		return nil
	})
	return err
}
