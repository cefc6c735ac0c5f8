package embedded

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openTest(t testing.TB, dir string, o Options) *DB {
	t.Helper()
	db, err := Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestCounterByManyClients(t *testing.T) {
	for name, o := range map[string]Options{"memory": {InMemory: true}, "disk": {}} {
		t.Run(name, func(t *testing.T) {
			db := openTest(t, t.TempDir(), o)
			ctx := t.Context()
			var clients errgroup.Group
			for range 16 {
				clients.Go(func() error {
					for range 20 {
						_, err := db.Transact(ctx, func(tx kv.Transaction) error {
							v, err := tx.Get([]byte("counter")).Get()
							if err != nil {
								return err
							}
							var n uint64
							if v != nil {
								n = binary.BigEndian.Uint64(v)
							}
							tx.Set([]byte("counter"), binary.BigEndian.AppendUint64(nil, n+1))
							tx.Add([]byte("added"), binary.LittleEndian.AppendUint64(nil, 1))
							return nil
						})
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(t, clients.Wait())
			require.NoError(t, db.ReadTransact(ctx, func(tx kv.ReadTransaction) error {
				v, err := tx.Get([]byte("counter")).Get()
				require.NoError(t, err)
				require.Equal(t, uint64(320), binary.BigEndian.Uint64(v))
				v, err = tx.Get([]byte("added")).Get()
				require.NoError(t, err)
				require.Equal(t, uint64(320), binary.LittleEndian.Uint64(v))
				return nil
			}))
		})
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	db := openTest(t, dir, Options{})
	_, err := Open(dir, Options{})
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, dir)
	require.NoError(t, db.Close())
	again := openTest(t, dir, Options{})
	require.NoError(t, again.Close())
	require.NoError(t, again.Close(), "Close is idempotent")
	_, err = again.Transact(t.Context(), func(kv.Transaction) error { return nil })
	require.ErrorIs(t, err, kv.ErrClosed)
}
