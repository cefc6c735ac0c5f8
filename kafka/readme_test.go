package kafka

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// readmeVersions reads the table of API keys in README.md: by key, the name, least and greatest version.
func readmeVersions(t *testing.T) map[int16][3]any {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \| (\d+)–(\d+) \|`).FindAllStringSubmatch(string(text), -1)
	versions := map[int16][3]any{}
	number := func(s string) int16 {
		n, err := strconv.ParseInt(s, 10, 16)
		require.NoError(t, err)
		return int16(n)
	}
	for _, row := range rows {
		versions[number(row[1])] = [3]any{row[2], number(row[3]), number(row[4])}
	}
	require.NotEmpty(t, versions)
	return versions
}
