package objectstest

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
)

// Bucket is the bucket of an S3Handler.
const Bucket = "varve-test"

// Credentials that an S3Handler takes; it checks none.
const (
	AccessKey = "test"
	SecretKey = "test-secret" //nolint:gosec // of no server
)

// S3Handler is an S3 server in memory with the empty bucket Bucket. Conditional writes are atomic.
func S3Handler(t testing.TB) http.Handler {
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket(Bucket))
	return gofakes3.New(backend, gofakes3.WithIntegrityCheck(true), gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
}

// S3Server serves S3Handler, behind the wrappers from the inside out, until the test ends. It gives the URL of the bucket.
func S3Server(t testing.TB, wrap ...func(http.Handler) http.Handler) string {
	handler := S3Handler(t)
	for _, w := range wrap {
		handler = w(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return "s3://" + Bucket + "?region=us-east-1&pathStyle=true&endpoint=" + server.URL
}

// s3Error answers as S3 does.
func s3Error(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>"+code+"</Code><Message>"+message+"</Message></Error>")
}

const (
	// realServerVariable names the bucket on a real server that tests may write to, as a store URL; credentials are in the environment too.
	realServerVariable = "VARVE_TEST_S3_URL"
	// atomicVariable is "true" when the server's conditional writes are atomic.
	atomicVariable = "VARVE_TEST_S3_ATOMIC"
)

// RealS3 gives the URL of an empty folder in the bucket of a real server; what is put there is the caller's to delete. Without a server the
// test is skipped.
func RealS3(t testing.TB) string {
	raw := os.Getenv(realServerVariable)
	if raw == "" {
		t.Skip(realServerVariable + ` is not set; run: eval "$(wal/objects/objectstest/server.sh start)"`)
	}
	u, err := url.Parse(raw)
	require.NoError(t, err)
	u.Path = "/" + strings.Trim(u.Path+"/test-"+rand.Text(), "/")
	return u.String()
}

// RealS3Options are what the server of RealS3 claims.
func RealS3Options() Options {
	return Options{AtomicPutIfAbsent: os.Getenv(atomicVariable) == "true"}
}
