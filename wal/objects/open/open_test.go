package open_test

import (
	"errors"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/open"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDirectories(t *testing.T) {
	parent := t.TempDir()
	t.Chdir(parent)
	for rawURL, want := range map[string]string{
		"file://" + parent + "/abs":       filepath.Join(parent, "abs"),
		"file://rel/ative":                filepath.Join(parent, "rel/ative"),
		"file://./dot":                    filepath.Join(parent, "dot"),
		"file://" + parent + "/a%20b%3Fc": filepath.Join(parent, "a b?c"),
	} {
		store, err := open.Store(t.Context(), rawURL, open.Options{})
		require.NoError(t, err, rawURL)
		require.Equal(t, (&url.URL{Scheme: "file", Path: want}).String(), store.String())
		require.NoError(t, open.Check(store.String()))
		require.DirExists(t, want)
		require.NoError(t, store.Put(t.Context(), "k", nil))
		require.NoError(t, objects.CheckAccess(t.Context(), store))
		require.NoError(t, store.Close())
		require.NoError(t, open.Check(rawURL))
	}
}

func TestBadURLs(t *testing.T) {
	for rawURL, want := range map[string]string{
		"":            "want s3://bucket",
		"bucket":      "want s3://bucket",
		"/tmp/x":      "want s3://bucket",
		"gs://bucket": "want s3://bucket",
		"s3:bucket":   "want s3://bucket",
		"file:/x":     "want s3://bucket",
		"file://":     "no directory",
		"file:///":    "root of the file system",
		"file://a/..%2f/../../../../../../..//?x": "no parameters",
		"file:///tmp/x?sync=false":                "no parameters",
		"file:///tmp/%zz":                         "hexadecimal",
		"file:///tmp/%00":                         "zero byte",
		"s3://":                                   "no bucket",
		"s3://b":                                  "3 to 63",
		"s3://bucket?secret=x":                    `unknown parameter "secret"`,
		"s3://k:hunter2@bucket/x":                 "credentials do not belong",
	} {
		_, err := open.Store(t.Context(), rawURL, open.Options{})
		require.ErrorContains(t, err, want, rawURL)
		require.NotContains(t, err.Error(), "hunter2")
		require.EqualError(t, open.Check(rawURL), err.Error())
	}
}

type counter map[string]int

func (c counter) Observe(op string, bytes int, _ time.Duration, err error) {
	c[op] += bytes
	if errors.Is(err, objects.ErrNotFound) {
		c["not found"]++
	}
}

func TestObserver(t *testing.T) {
	seen := counter{}
	store, err := open.Store(t.Context(), "file://"+t.TempDir(), open.Options{Observer: seen})
	require.NoError(t, err)
	require.NoError(t, store.Put(t.Context(), "k", []byte("1234")))
	_, err = store.GetAll(t.Context(), "k", 10)
	require.NoError(t, err)
	_, err = store.Head(t.Context(), "none")
	require.ErrorIs(t, err, objects.ErrNotFound)
	require.NoError(t, objects.CheckAccess(t.Context(), store), "the check sees the store behind the observer")
	require.Equal(t, counter{objects.OpPut: 4, objects.OpGetAll: 4, objects.OpHead: 0, "not found": 1}, seen)
	require.NoError(t, store.Close())
}
