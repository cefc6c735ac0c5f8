package s3_test

import (
	"testing"
	"time"

	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/objects/s3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fast are options whose pauses and limits suit a test.
func fast() s3.Options {
	return s3.Options{
		Credentials:    awscredentials.NewStaticCredentialsProvider(objectstest.AccessKey, objectstest.SecretKey, ""),
		AttemptTimeout: 5 * time.Second,
		BackoffFirst:   time.Millisecond,
		BackoffMax:     5 * time.Millisecond,
	}
}

func open(t testing.TB, url string, options s3.Options) *s3.Store {
	t.Helper()
	location, err := s3.ParseLocation(url)
	require.NoError(t, err)
	store, err := s3.Open(t.Context(), location, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func TestContract(t *testing.T) {
	objectstest.Run(t, func(t *testing.T) objects.Store { return open(t, objectstest.S3Server(t), fast()) },
		objectstest.Options{AtomicPutIfAbsent: true})
}
