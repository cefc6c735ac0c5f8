package layer

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README lists every keyspace and every command.
func TestReadmeIsComplete(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, space := range spaces() {
		require.True(t, strings.Contains(string(text), `| `+"`"+`("`+space.name+`"`), "keyspace %s is missing", space.name)
	}
	for _, c := range commands() {
		name, _, _ := strings.Cut(c.name, " ")
		require.True(t, strings.Contains(string(text), "| "+name+" |"), "command %s is missing", name)
	}
}
