//go:build fdb

package fdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/fdb"
	"github.com/varvedb/varve/layer/fdb/fdbtest"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kvtest"
)

// The engine, the binding and the shim keep the contract: over the cluster of VARVE_TEST_CLUSTER_FILE if that is set,
// else over the fake library.
func TestContract(t *testing.T) {
	kvtest.Run(t, func(t *testing.T) kv.Database {
		if fdb.FakeLibrary() == "" {
			return kvtest.Open(t)
		}
		db, err := fdb.Open(t.Context(), fdb.Options{Library: fdb.FakeLibrary(), ClusterFile: fdbtest.ClusterFile(t)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return aging{db, t}
	})
}

// aging moves the fake library's clock, so that the suite need not wait.
type aging struct {
	*fdb.Database
	t *testing.T
}

var _ kvtest.Aging = aging{}

func (a aging) Age(d time.Duration) { fdb.Age(a.t, a.Database, d) }
