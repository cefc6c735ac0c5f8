package engine

import (
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Tags, defaults and README say the same.
func TestOptionsAgree(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	defaults := reflect.ValueOf(DefaultOptions())
	for i := range defaults.NumField() {
		field, value := defaults.Type().Field(i), defaults.Field(i)
		flag, tag, usage := field.Tag.Get("flag"), field.Tag.Get("default"), field.Tag.Get("usage")
		require.NotEmpty(t, flag, field.Name)
		require.NotEmpty(t, usage, field.Name)
		if d, ok := value.Interface().(time.Duration); ok {
			parsed, err := time.ParseDuration(tag)
			require.NoError(t, err, flag)
			require.Equal(t, parsed, d, flag)
		} else {
			require.Equal(t, tag, fmt.Sprint(value.Interface()), flag)
		}
		require.Contains(t, string(readme), fmt.Sprintf("| `%s` | %s | %s |\n", flag, tag, usage))
	}
	require.NoError(t, DefaultOptions().Validate())
	require.ErrorContains(t, Options{}.Validate(), "pack-bytes")
	_, err = New(Deps{}, Options{})
	require.Error(t, err)
}
