package s3_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/s3"
)

func TestLocations(t *testing.T) {
	yes := true
	for url, want := range map[string]s3.Location{
		"s3://bucket":                  {Bucket: "bucket"},
		"s3://bucket/":                 {Bucket: "bucket"},
		"s3://my.bucket-1/a/b/":        {Bucket: "my.bucket-1", Prefix: "a/b"},
		"s3://bucket?region=eu-west-1": {Bucket: "bucket", Region: "eu-west-1"},
		"s3://bucket/p?endpoint=http://127.0.0.1:9000/&pathStyle=true": {Bucket: "bucket", Prefix: "p", Endpoint: "http://127.0.0.1:9000", PathStyle: &yes},
		"s3://bucket?endpoint=https%3A%2F%2Fs3.example.com":            {Bucket: "bucket", Endpoint: "https://s3.example.com"},
		"s3://bucket?endpoint=http://[::1]:9000":                       {Bucket: "bucket", Endpoint: "http://[::1]:9000"},
	} {
		got, err := s3.ParseLocation(url)
		require.NoError(t, err, url)
		require.Equal(t, want, got, url)
		again, err := s3.ParseLocation(got.String())
		require.NoError(t, err)
		require.Equal(t, want, again)
	}
}

func TestBadLocations(t *testing.T) {
	for url, want := range map[string]string{
		"http://bucket":                           `scheme "http", want s3`,
		"s3:bucket":                               "two slashes",
		"s3://":                                   "names no bucket",
		"s3:///prefix":                            "names no bucket",
		"s3://ab":                                 "3 to 63",
		"s3://bucket:9000/x":                      "?endpoint=http://host:port",
		"s3://bucket#x":                           "fragment",
		"s3://bucket/a//b":                        "an empty part",
		"s3://bucket/../b":                        `a part ".."`,
		"s3://bucket/a%20b":                       "byte 1",
		"s3://key:hunter2@bucket":                 "credentials do not belong in the URL",
		"s3://key:hunter2/x@bucket":               "cannot be read as a URL",
		"s3://bucket?secretKey=hunter2":           `unknown parameter "secretKey"`,
		"s3://bucket?region":                      "want one value",
		"s3://bucket?region=a&region=b":           "want one value",
		"s3://bucket?region=a/b":                  "parameter region",
		"s3://bucket?pathStyle=1":                 "parameter pathStyle: want true or false",
		"s3://bucket?endpoint=localhost:9000":     "parameter endpoint: want http",
		"s3://bucket?endpoint=ftp://x":            "parameter endpoint: want http",
		"s3://bucket?endpoint=http://x/path":      "scheme, host and port only",
		"s3://bucket?endpoint=http://k:hunter2@x": "credentials do not belong in the URL",
		"s3://bucket?%zz":                         "cannot be read",
		"s3://bucket?a=%zz":                       "cannot be read",
	} {
		_, err := s3.ParseLocation(url)
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func FuzzParseLocation(f *testing.F) {
	for _, seed := range []string{
		"s3://bucket/prefix?region=eu-west-1&endpoint=http://127.0.0.1:9000&pathStyle=true", "s3://k:hunter2@bucket", "s3://", "s3://b?x=hunter2", "s3:///", "%",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		got, err := s3.ParseLocation(url)
		if err != nil {
			require.Less(t, len(err.Error()), 400+len(url))
			return
		}
		require.NotContains(t, got.String(), "@")
		require.False(t, strings.HasPrefix(got.Prefix, "/") || strings.HasSuffix(got.Prefix, "/"))
		if got.Prefix != "" {
			require.NoError(t, objects.ValidateKey(got.Prefix))
		}
		again, err := s3.ParseLocation(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
