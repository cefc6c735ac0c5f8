package wal

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

func TestModeIsWhatTheStoreCanBeTrustedWith(t *testing.T) {
	cases := []struct {
		store           objectstest.PutIfAbsentMode
		requested, want layer.FenceMode
	}{
		{objectstest.Atomic, "", layer.FenceBoth},
		{objectstest.Atomic, layer.FenceBoth, layer.FenceBoth},
		{objectstest.Atomic, layer.FenceStore, layer.FenceStore},
		{objectstest.Atomic, layer.FenceLayer, layer.FenceLayer},
		{objectstest.Racy, "", layer.FenceLayer},
		{objectstest.Racy, layer.FenceStore, layer.FenceLayer},
		{objectstest.Ignored, layer.FenceBoth, layer.FenceLayer},
		{objectstest.Unsupported, layer.FenceBoth, layer.FenceLayer},
		{objectstest.Unsupported, layer.FenceLayer, layer.FenceLayer},
	}
	for _, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			store := objectstest.NewFake()
			store.SetPutIfAbsent(c.store)
			got, err := ChooseMode(t.Context(), store, c.requested)
			require.NoError(t, err)
			require.Equal(t, c.want, got, "store %d, requested %q", c.store, c.requested)
			require.Empty(t, store.Keys())
		})
	}
	store := objectstest.NewFake()
	_, err := ChooseMode(t.Context(), store, "neither")
	require.ErrorContains(t, err, "neither")
	store.SetOutage(true)
	_, err = ChooseMode(t.Context(), store, "")
	require.ErrorIs(t, err, objectstest.ErrOutage)
	mode, err := ChooseMode(t.Context(), store, layer.FenceLayer)
	require.NoError(t, err)
	require.Equal(t, layer.FenceLayer, mode)
}
