package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Clusters of development on one FoundationDB must not meet: their nodes have the same ids.
func TestDevClusterName(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	name, err := devClusterName(one)
	require.NoError(t, err)
	require.Regexp(t, "^dev-[a-z0-9]{10}$", name)
	again, err := devClusterName(one)
	require.NoError(t, err)
	require.Equal(t, name, again)
	different, err := devClusterName(other)
	require.NoError(t, err)
	require.NotEqual(t, name, different)
}
