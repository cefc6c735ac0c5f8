package process

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/varvedb/varve/layer/fdb"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
	"github.com/varvedb/varve/layer/kvtest"
)

// metadata gives the flags that choose where nodes of a test keep their metadata: nothing for the embedded engine, or a cluster of a random name
// in the FoundationDB that kvtest's variables name, which is cleared when the test ends.
func metadata(t testing.TB, options Options) []string {
	t.Helper()
	clusterFile := os.Getenv(kvtest.ClusterFileVariable)
	if clusterFile == "" || options.Embedded {
		return nil
	}
	cluster := "test-" + strings.ToLower(rand.Text())
	library := os.Getenv(kvtest.LibraryVariable)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		db, err := fdb.Open(ctx, fdb.Options{ClusterFile: clusterFile, Library: library})
		if err != nil {
			t.Errorf("clear what the test left in the cluster: %v", err)
			return
		}
		defer db.Close()
		if err := kvtest.Empty(ctx, kv.Prefixed(db, tuple.Tuple{"varve", cluster}.Pack())); err != nil {
			t.Errorf("clear what the test left in the cluster: %v", err)
		}
	})
	args := []string{"--cluster-file", clusterFile, "--cluster", cluster}
	if library != "" {
		args = append(args, "--fdb-library", library)
	}
	return args
}
