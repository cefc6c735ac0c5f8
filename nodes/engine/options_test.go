package engine

import (
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README lists every option with its default, and the defaults are valid.
func TestOptionsAgree(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	options := reflect.TypeFor[Options]()
	for i := range options.NumField() {
		tag := options.Field(i).Tag
		require.NotEmpty(t, tag.Get("flag"), options.Field(i).Name)
		require.Contains(t, string(readme), fmt.Sprintf("| `%s` | %s | %s |\n", tag.Get("flag"), tag.Get("default"), tag.Get("usage")))
	}
	require.NoError(t, DefaultOptions().Validate())
	require.ErrorContains(t, Options{}.Validate(), "pack-bytes")
	_, err = New(Deps{}, Options{})
	require.Error(t, err)
}
