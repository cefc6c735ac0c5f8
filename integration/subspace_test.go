package integration

import (
	"bytes"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/integration/process"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
	"github.com/varvedb/varve/wiring"
)

// TestSubspace shares a database with another application, and with a cluster of the same name that lies elsewhere in it.
func TestSubspace(t *testing.T) {
	below := process.New(t, process.Options{Binary: binary, Embedded: true, Args: []string{"--subspace", "streams"}})
	config := wiring.DefaultConfig()
	config.Process.DataDir = below.DataDir()
	foreign := tuple.Tuple{"shop", "orders", 1}.Pack()
	database(t, config, func(tr kv.Transaction) { tr.Set(foreign, []byte("theirs")) })

	below.Start()
	below.AwaitReady()
	put(t, below, "notes", "kept")
	require.Zero(t, below.Stop())

	database(t, config, func(tr kv.Transaction) {
		rows, err := tr.GetRange(nil, []byte{0xff}, kv.RangeOptions{}).Get()
		require.NoError(t, err)
		require.Greater(t, len(rows), 5)
		for _, row := range rows {
			if bytes.Equal(row.Key, foreign) {
				require.Equal(t, "theirs", string(row.Value))
				continue
			}
			require.True(t, bytes.HasPrefix(row.Key, tuple.Tuple{"streams", "varve", "varve"}.Pack()), "%q lies outside of the subspace", row.Key)
		}
	})

	out, err := below.Varve("inspect", "--data-dir", below.DataDir(), "--subspace", "streams", "--keyspace", "table")
	require.NoError(t, err)
	require.Contains(t, out, "notes")
	_, err = below.Varve("inspect", "check", "--data-dir", below.DataDir(), "--subspace", "streams")
	require.NoError(t, err)
	out, err = below.Varve("inspect", "--data-dir", below.DataDir())
	require.NoError(t, err)
	require.Empty(t, out, "there is nothing of Varve outside of the subspace")

	below.Start()
	below.AwaitReady()
	status, body := get(t, below, "notes")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "kept", body)
}

// database opens the embedded engine of a data directory that no process serves, and runs one transaction.
func database(t *testing.T, config wiring.Config, run func(kv.Transaction)) {
	t.Helper()
	db, err := wiring.OpenDatabase(t.Context(), config, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, err = db.Transact(t.Context(), func(tr kv.Transaction) error {
		run(tr)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
