package integration

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/integration/process"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

// faultTime is how long a store is made to fail. VARVE_TEST_LONG makes it a minute.
func faultTime() time.Duration {
	if os.Getenv("VARVE_TEST_LONG") != "" {
		return time.Minute
	}
	return 6 * time.Second
}

// TestObjectStoreFails makes the object store answer 503, stall and be full under load. Appends wait or fail retryably, nothing acknowledged is lost, memory
// stays bounded, and it recovers by itself, and by a restart in the middle as well.
func TestObjectStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		choose func(n int, r *http.Request) objectstest.HTTPFault
		kill   bool // in the middle of the faults
	}{
		"503 on every second call": {choose: objectstest.EverySecond(objectstest.SlowDown)},
		"stalls":                   {choose: func(n int, _ *http.Request) objectstest.HTTPFault { return every(n, 3, objectstest.Stall) }},
		"full":                     {choose: func(_ int, r *http.Request) objectstest.HTTPFault { return writes(r, objectstest.InternalError) }},
		"killed while 503":         {choose: objectstest.EverySecond(objectstest.SlowDown), kill: true},
		"answers are lost":         {choose: func(n int, _ *http.Request) objectstest.HTTPFault { return every(n, 2, objectstest.ResetAfter) }, kill: true},
	} {
		t.Run(name, func(t *testing.T) {
			store := newFaultyStore(t, c.choose)
			node := process.New(t, process.Options{
				Binary: binary, Storage: store.url, Env: []string{"AWS_ACCESS_KEY_ID=" + objectstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + objectstest.SecretKey},
				Args: []string{"--wal-inline-max", "600B", "--pack-interval", "500ms", "--wal-backlog-bytes", "8MiB", "--block-cache-bytes", "16MiB"},
			})
			node.Start()
			node.AwaitReady()
			clients := startClients(t, node)
			time.Sleep(time.Second)
			before := clients.acknowledged()

			store.failing.Store(true)
			time.Sleep(faultTime() / 2)
			if c.kill {
				node.Kill()
				node.Start()
			}
			time.Sleep(faultTime() / 2)
			require.Less(t, node.RSS(), int64(600<<20), "memory of the process while the store fails")
			store.failing.Store(false)

			node.AwaitReady()
			clients.awaitMore(t, before)
			clients.stop()
			clients.check(t)
		})
	}
}

func every(n, nth int, fault objectstest.HTTPFault) objectstest.HTTPFault {
	if n%nth == 0 {
		return fault
	}
	return objectstest.None
}

func writes(r *http.Request, fault objectstest.HTTPFault) objectstest.HTTPFault {
	if r.Method == http.MethodPut || r.Method == http.MethodPost {
		return fault
	}
	return objectstest.None
}

// faultyStore is an S3 server that fails while it is told to.
type faultyStore struct {
	url     string
	failing atomic.Bool
}

func newFaultyStore(t *testing.T, choose func(int, *http.Request) objectstest.HTTPFault) *faultyStore {
	s := &faultyStore{}
	s.url = objectstest.S3Server(t, func(next http.Handler) http.Handler {
		return &objectstest.FaultProxy{Next: next, Choose: func(n int, r *http.Request) objectstest.HTTPFault {
			if !s.failing.Load() {
				return objectstest.None
			}
			return choose(n, r)
		}}
	})
	return s
}

// awaitMore returns when clients have got on well beyond a number of acknowledgements.
func (c *clients) awaitMore(t *testing.T, before int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.acknowledged() > before+500 }, drainTime, 10*time.Millisecond, "clients do not get on")
}

// TestDamagedObject flips a byte in a data object. Reading it fails with an error that names the object and the offset, other streams are served, and
// nothing is deleted.
func TestDamagedObject(t *testing.T) {
	node := process.New(t, process.Options{Binary: binary, Args: []string{"--pack-interval", "200ms", "--block-cache-bytes", "1", "--wal-inline-max", "512KiB"}})
	node.Start()
	node.AwaitReady()
	put(t, node, "damaged", strings.Repeat("precious ", 1000))
	awaitPacked(t, node, "damaged")
	object := onlyObjectWith(t, node, "precious")
	put(t, node, "sound", "sound")
	awaitPacked(t, node, "sound")
	require.Zero(t, node.Stop())

	body, err := os.ReadFile(object)
	require.NoError(t, err)
	at := strings.Index(string(body), "precious")
	body[at+3] ^= 0x40
	require.NoError(t, os.WriteFile(object, body, 0o600))
	node.Start()
	node.AwaitReady()

	status, text := get(t, node, "damaged")
	require.Equal(t, http.StatusInternalServerError, status)
	require.Contains(t, text, filepath.Base(object))
	require.Contains(t, text, "offset")
	status, text = get(t, node, "sound")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "sound", text)
	require.FileExists(t, object)
}

func streamAddress(node *process.Node, stream string) string {
	u := url.URL{Scheme: "http", Host: node.HTTP, Path: "/v1/stream/" + stream}
	return u.String()
}

func put(t *testing.T, node *process.Node, stream, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPut, streamAddress(node, stream), strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "text/plain")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, http.StatusCreated, answer.StatusCode)
}

func get(t *testing.T, node *process.Node, stream string) (int, string) {
	t.Helper()
	answer, err := http.Get(streamAddress(node, stream))
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

// awaitPacked returns when everything in the stream lies in data objects.
func awaitPacked(t *testing.T, node *process.Node, stream string) {
	t.Helper()
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + node.Admin + "/admin/streams/" + stream)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return strings.Contains(string(body), `"packed_end":1`)
	}, drainTime, 20*time.Millisecond, "the stream is not packed")
}

// onlyObjectWith finds the object of the directory store that holds a text.
func onlyObjectWith(t *testing.T, node *process.Node, text string) string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.Walk(filepath.Join(node.DataDir(), "objects"), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(body), text) {
			found = append(found, path)
		}
		return err
	}))
	require.Len(t, found, 1)
	return found[0]
}
