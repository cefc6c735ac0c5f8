package s3_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/objects/s3"
)

func cleanupContext() context.Context { return context.Background() }

// fast0 are fast options with other credentials.
func fast0(access, secret string) s3.Options {
	options := fast()
	options.Credentials = awscredentials.NewStaticCredentialsProvider(access, secret, "")
	return options
}

// checkAccess wants one line within a bounded time.
func checkAccess(t *testing.T, store objects.Store, within time.Duration) error {
	t.Helper()
	start := time.Now()
	err := objects.CheckAccess(t.Context(), store)
	require.Less(t, time.Since(start), within)
	if err != nil {
		t.Log(err)
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, len(err.Error()), 500)
		require.NotContains(t, err.Error(), objectstest.SecretKey)
		require.Contains(t, err.Error(), store.String())
	}
	return err
}

func TestAccess(t *testing.T) {
	url := objectstest.S3Server(t)
	require.NoError(t, checkAccess(t, open(t, url, fast()), time.Second))
	missing := strings.Replace(url, objectstest.Bucket, "no-such-bucket", 1)
	require.ErrorIs(t, checkAccess(t, open(t, missing, fast()), time.Second), objects.ErrNoBucket)

	store, proxy := faulty(t, fast())
	proxy.set(objectstest.Always(objectstest.Denied))
	require.ErrorIs(t, checkAccess(t, store, time.Second), objects.ErrDenied)
}

func TestAccessToNobody(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	store := open(t, "s3://bucket?endpoint=http://"+listener.Addr().String(), fast())
	require.ErrorContains(t, checkAccess(t, store, time.Second), "connection refused")

	store = open(t, "s3://bucket?endpoint=http://no-such-host.invalid", fast())
	require.Error(t, checkAccess(t, store, 10*time.Second))
}

// A black hole takes connections and says nothing.
func TestAccessToABlackHole(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	store := open(t, "s3://bucket?endpoint=http://"+listener.Addr().String(), short())
	require.ErrorContains(t, checkAccess(t, store, 2*time.Second), "no answer in time")

	store = open(t, "s3://bucket?endpoint=http://"+listener.Addr().String(), fast())
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("the start takes too long"))
	defer cancel()
	err = objects.CheckAccess(ctx, store)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "the start takes too long")
}

func TestAccessWithoutCredentials(t *testing.T) {
	options := fast()
	options.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("no provider has any")
	})
	store := open(t, objectstest.S3Server(t), options)
	err := checkAccess(t, store, time.Second)
	require.ErrorIs(t, err, objects.ErrDenied)
	require.ErrorContains(t, err, "no provider has any")
}

func TestAccessByTheWrongRegion(t *testing.T) {
	url := objectstest.S3Server(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
			w.WriteHeader(http.StatusMovedPermanently)
			_, _ = w.Write([]byte("<Error><Code>PermanentRedirect</Code><Message>Use another endpoint.</Message></Error>"))
		})
	})
	err := checkAccess(t, open(t, url, fast()), time.Second)
	require.ErrorContains(t, err, "PermanentRedirect")
	require.ErrorContains(t, err, "the bucket is in region eu-central-1")
}

func TestARegionIsNeeded(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", "none")
	t.Setenv("AWS_ENDPOINT_URL", "")
	t.Setenv("AWS_ENDPOINT_URL_S3", "")
	location, err := s3.ParseLocation("s3://bucket")
	require.NoError(t, err)
	_, err = s3.Open(t.Context(), location, fast())
	require.ErrorContains(t, err, "region")
}

// The endpoint, the region and the credentials may all come from the environment.
func TestTheEnvironment(t *testing.T) {
	full := objectstest.S3Server(t)
	location, err := s3.ParseLocation(full)
	require.NoError(t, err)
	t.Setenv("AWS_ACCESS_KEY_ID", "environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", objectstest.SecretKey)
	t.Setenv("AWS_REGION", "eu-west-1")
	t.Setenv("AWS_ENDPOINT_URL_S3", location.Endpoint)
	options := fast()
	options.Credentials = nil
	store := open(t, "s3://"+objectstest.Bucket+"/some/folder", options)
	require.NoError(t, checkAccess(t, store, time.Second))
	require.NoError(t, store.Put(t.Context(), "k", []byte("x")))

	whole := open(t, full, fast())
	infos, err := whole.List(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.Len(t, infos, 1)
	require.Equal(t, "some/folder/k", infos[0].Key)
}
