package fdb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseClusterFile(t *testing.T) {
	for _, test := range []struct{ content, want string }{
		{"docker:docker@127.0.0.1:4500", "docker:docker@127.0.0.1:4500"},
		{"a_b:ID9@10.0.0.1:4500,10.0.0.2:4501:tls\n", "a_b:ID9@10.0.0.1:4500,10.0.0.2:4501:tls"},
		{"# DO NOT EDIT!\r\n\r\n  d:i@1.2.3.4:1  # behind it\n", "d:i@1.2.3.4:1"},
		{"d:i@\n1.2.3.4:1,\n1.2.3.5:1", "d:i@1.2.3.4:1,1.2.3.5:1"},
		{"d:i@[::1]:65535:tls", "d:i@[::1]:65535:tls"},
		{"d:i@fdb-0.fdb.svc.cluster.local:4500", "d:i@fdb-0.fdb.svc.cluster.local:4500"},
	} {
		parsed, err := ParseClusterFile(test.content)
		require.NoError(t, err, "%q", test.content)
		require.Equal(t, test.want, parsed.String())
	}
}

func TestParseClusterFileRefuses(t *testing.T) {
	for content, want := range map[string]string{
		"":                               "no connection string",
		"# only a comment\n":             "no connection string",
		"description:id":                 "no @",
		"description@1.2.3.4:1":          "no : in",
		"a-b:id@1.2.3.4:1":               `description "a-b"`,
		":id@1.2.3.4:1":                  `description ""`,
		"d:@1.2.3.4:1":                   `id ""`,
		"d:i_d@1.2.3.4:1":                `id "i_d"`,
		"d:i@":                           "no port",
		"d:i@1.2.3.4":                    "no port",
		"d:i@1.2.3.4:0":                  `port "0"`,
		"d:i@1.2.3.4:65536":              `port "65536"`,
		"d:i@1.2.3.4:+1":                 `port "+1"`,
		"d:i@1.2.3.4:1:TLS":              `port "TLS"`,
		"d:i@1.2.3:1":                    "not an IPv4 address",
		"d:i@::1:4500":                   "wants brackets",
		"d:i@[1.2.3.4]:1":                "not an IPv6 address",
		"d:i@[::1:1":                     "not an IPv6 address",
		"d:i@ho/st:1":                    "neither an IP address nor a host name",
		"d:i@1.2.3.4:1,":                 "no port",
		"d:i@1.2.3.4:1,1.2.3.4:1":        "appears twice",
		"d:i@1.2.3.4:1\nd:i@1.2.3.5:2\n": "neither an IP address",
	} {
		_, err := ParseClusterFile(content)
		require.ErrorContains(t, err, want, "%q", content)
	}
}

func TestReadClusterFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fdb.cluster")
	_, err := ReadClusterFile(path)
	require.ErrorIs(t, err, ErrClusterFile)
	require.ErrorContains(t, err, path+" does not exist")
	_, err = ReadClusterFile("")
	require.ErrorIs(t, err, ErrClusterFile)
	_, err = ReadClusterFile(filepath.Dir(path))
	require.ErrorIs(t, err, ErrClusterFile)

	require.NoError(t, os.WriteFile(path, []byte("nonsense"), 0o600))
	_, err = ReadClusterFile(path)
	require.ErrorIs(t, err, ErrClusterFile)
	require.ErrorContains(t, err, path+": no @")

	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", maxClusterFileSize+1)), 0o600))
	_, err = ReadClusterFile(path)
	require.ErrorContains(t, err, "over 65536 bytes")

	require.NoError(t, os.WriteFile(path, []byte("d:i@1.2.3.4:5"), 0o600))
	parsed, err := ReadClusterFile(path)
	require.NoError(t, err)
	require.Equal(t, ClusterFile{"d", "i", []Coordinator{{"1.2.3.4", 5, false}}}, parsed)
}

// What is accepted prints as something that means the same.
func FuzzParseClusterFile(f *testing.F) {
	f.Add("# comment\nd:i@1.2.3.4:1,[::1]:2:tls,host:3\n")
	f.Add("d:i@")
	f.Fuzz(func(t *testing.T, content string) {
		parsed, err := ParseClusterFile(content)
		if err != nil {
			return
		}
		again, err := ParseClusterFile(parsed.String())
		require.NoError(t, err)
		require.Equal(t, parsed, again)
	})
}
