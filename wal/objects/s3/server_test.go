package s3_test

import (
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/objects/s3"
)

// openReal opens an empty folder on a real server, by the environment's credentials, and empties it at the end.
func openReal(t *testing.T, options s3.Options) *s3.Store {
	t.Helper()
	store := open(t, objectstest.RealS3(t), options)
	t.Cleanup(func() { deleteAll(t, store) })
	return store
}

func deleteAll(t *testing.T, store objects.Store) {
	ctx := t.Context()
	if ctx.Err() != nil { // that of a test ends before its cleanups
		ctx = cleanupContext()
	}
	for {
		infos, err := store.List(ctx, "", "", 1000)
		require.NoError(t, err)
		var keys []string
		for _, info := range infos {
			keys = append(keys, info.Key)
		}
		require.NoError(t, store.Delete(ctx, keys...))
		if len(infos) < 1000 {
			return
		}
	}
}

func TestContractOnARealServer(t *testing.T) {
	objectstest.RealS3(t) // skips
	objectstest.Run(t, func(t *testing.T) objects.Store { return openReal(t, s3.Options{}) }, objectstest.RealS3Options())
}

func TestProbeOnARealServer(t *testing.T) {
	store := openReal(t, s3.Options{})
	found, err := objects.Probe(t.Context(), store, "probe", 20, 8)
	require.NoError(t, err)
	t.Logf("atomic: %t %s", found.Atomic, found.Reason)
	if objectstest.RealS3Options().AtomicPutIfAbsent {
		require.True(t, found.Atomic, found.Reason)
	}
	infos, err := store.List(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.Empty(t, infos)
}

func TestFaultsBeforeARealServer(t *testing.T) {
	location, err := url.Parse(objectstest.RealS3(t))
	require.NoError(t, err)
	query := location.Query()
	proxy := &objectstest.FaultProxy{Next: objectstest.ReverseProxy(t, query.Get("endpoint"))}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	query.Set("endpoint", server.URL)
	location.RawQuery = query.Encode()
	for _, fault := range []objectstest.HTTPFault{objectstest.SlowDown, objectstest.ResetAfter, objectstest.CutBody, objectstest.CorruptBody, objectstest.ShortBody} {
		options := short()
		options.Credentials = nil
		options.MaxAttempts = 20
		store := open(t, location.String(), options)
		proxy.Choose = objectstest.EverySecond(fault)
		require.NoError(t, store.Put(t.Context(), "a/b", []byte("0123456789")))
		body, err := store.GetAll(t.Context(), "a/b", 100)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(body), "fault %d", fault)
		if fault != objectstest.CorruptBody { // of a range there is no checksum
			body, err = store.Get(t.Context(), "a/b", 2, 5)
			require.NoError(t, err)
			require.Equal(t, "23456", string(body))
		}
		proxy.Choose = nil
		require.NoError(t, store.Delete(t.Context(), "a/b"))
	}
}

func TestBadCredentialsOnARealServer(t *testing.T) {
	store := open(t, objectstest.RealS3(t), fast0("nobody", "wrong"))
	err := objects.CheckAccess(t.Context(), store)
	require.ErrorIs(t, err, objects.ErrDenied)
	require.NotContains(t, err.Error(), "wrong")
	t.Log(err)
}
