package dir_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/dir"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB) *dir.Store {
	t.Helper()
	store, err := dir.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func TestContract(t *testing.T) {
	objectstest.Run(t, func(t *testing.T) objects.Store { return open(t) }, objectstest.Options{AtomicPutIfAbsent: true, Folders: true})
}
