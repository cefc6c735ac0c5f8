package kvtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/kv"
)

// The whole suite runs on prefixed databases; this is what it cannot see from inside one.
func TestPrefixedDatabasesAreApart(t *testing.T) {
	whole := OpenEmbedded(t, embedded.Options{})
	parts := map[string]*kv.PrefixedDatabase{}
	for _, prefix := range []string{"a", "b", "b\x00", "b\xff", "c"} {
		parts[prefix] = kv.Prefixed(whole, b(prefix))
		require.Equal(t, b(prefix), parts[prefix].Prefix())
	}
	ctx := t.Context()
	for prefix, part := range parts {
		commit, err := part.Transact(ctx, func(tx kv.Transaction) error {
			tx.Set(b("key"), b(prefix))
			tx.SetVersionstampedKey(stampedKey("stamp/", ""), b(prefix))
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, whole.ReadTransact(ctx, func(tx kv.ReadTransaction) error {
			value, err := tx.Get(b(prefix + "key")).Get()
			require.NoError(t, err)
			require.Equal(t, prefix, string(value))
			value, err = tx.Get(b(prefix + "stamp/" + string(commit.Versionstamp[:]))).Get()
			require.NoError(t, err)
			require.Equal(t, prefix, string(value), "the offset of the versionstamp moved with the key")
			return nil
		}))
	}
	require.NoError(t, Empty(ctx, parts["a"]))
	require.NoError(t, whole.ReadTransact(ctx, func(tx kv.ReadTransaction) error {
		rows, err := tx.GetRange(nil, b("\xff"), kv.RangeOptions{}).Get()
		require.NoError(t, err)
		require.Len(t, rows, 2*(len(parts)-1), "clearing a part clears no other")
		return nil
	}))
	require.Equal(t, kv.MaxKeySize-3, kv.MaxKeySizeOf(kv.Prefixed(parts["b"], b("xy"))))
	require.NoError(t, parts["a"].Close())
	require.NoError(t, Empty(ctx, parts["c"]), "closing a part closes no other")
}
