//go:build !fdb

package fdb

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithoutTheBuildTag(t *testing.T) {
	_, err := Open(t.Context(), Options{})
	require.ErrorIs(t, err, ErrNotBuilt)
	require.ErrorContains(t, err, "build with make on a machine with a C compiler")
	require.NoError(t, StopNetwork())
}
