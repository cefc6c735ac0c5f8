package s3_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/objects/s3"
)

// faulty opens a store on a server behind a proxy without faults; the test sets them.
func faulty(t *testing.T, options s3.Options) (*s3.Store, *proxied) {
	p := &proxied{FaultProxy: &objectstest.FaultProxy{}}
	p.FaultProxy.Choose = p.choose
	url := objectstest.S3Server(t, func(next http.Handler) http.Handler {
		p.Next = next
		return p
	})
	return open(t, url, options), p
}

// proxied is a proxy whose faults are set while it runs.
type proxied struct {
	*objectstest.FaultProxy
	mu    sync.Mutex // guards what follows
	from  int
	fault func(n int, r *http.Request) objectstest.HTTPFault
}

func (p *proxied) choose(n int, r *http.Request) objectstest.HTTPFault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil {
		return objectstest.None
	}
	return p.fault(n-p.from, r)
}

// set puts faults on the requests from now on.
func (p *proxied) set(fault func(n int, r *http.Request) objectstest.HTTPFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.from = fault, p.Requests()
}

// short has limits that a fault which hangs runs into.
func short() s3.Options {
	options := fast()
	options.AttemptTimeout = 100 * time.Millisecond
	return options
}

// TestEveryOperationSurvives each fault on its first attempt.
func TestEveryOperationSurvives(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	for name, fault := range map[string]objectstest.HTTPFault{
		"503":        objectstest.SlowDown,
		"500":        objectstest.InternalError,
		"409":        objectstest.Conflict,
		"stall":      objectstest.Stall,
		"reset":      objectstest.Reset,
		"no answer":  objectstest.NoAnswer,
		"cut off":    objectstest.ResetAfter,
		"cut body":   objectstest.CutBody,
		"stall body": objectstest.StallBody,
	} {
		t.Run(name, func(t *testing.T) {
			store, proxy := faulty(t, short())
			ctx := t.Context()
			once := objectstest.First(1, fault)

			proxy.set(once)
			require.NoError(t, store.Put(ctx, "k", body))
			proxy.set(once)
			got, err := store.GetAll(ctx, "k", 1<<20)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, got))
			proxy.set(once)
			got, err = store.Get(ctx, "k", 5, 60000)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body[5:60005], got))
			proxy.set(once)
			got, size, err := store.GetTail(ctx, "k", 1000)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body[len(body)-1000:], got))
			require.EqualValues(t, len(body), size)
			proxy.set(once)
			_, err = store.Head(ctx, "k")
			require.NoError(t, err)
			proxy.set(once)
			infos, err := store.List(ctx, "", "", 10)
			require.NoError(t, err)
			require.Len(t, infos, 1)
			proxy.set(once)
			require.NoError(t, store.Delete(ctx, "k", "k2", "k3"))
			proxy.set(once)
			require.NoError(t, store.Delete(ctx, "k"))

			proxy.set(once)
			err = store.PutIfAbsent(ctx, "k", body)
			if fault == objectstest.NoAnswer || fault == objectstest.ResetAfter {
				// It had succeeded, and the caller, who is told that it exists, finds its own bytes.
				require.ErrorIs(t, err, objects.ErrExists)
			} else {
				require.NoError(t, err)
			}
			proxy.set(nil)
			got, err = store.GetAll(ctx, "k", 1<<20)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, got))
		})
	}
}

// TestContractWithSlowDown runs all of the contract on a server that refuses every second request.
func TestContractWithSlowDown(t *testing.T) {
	objectstest.Run(t, func(t *testing.T) objects.Store {
		options := fast()
		options.MaxAttempts = 20 // of eight writers one may meet the fault again and again
		store, proxy := faulty(t, options)
		proxy.set(objectstest.EverySecond(objectstest.SlowDown))
		return store
	}, objectstest.Options{AtomicPutIfAbsent: true, Large: 8 << 20})
}

// TestReadsAreWhole: an answer that is cut short, in whatever way shows, is not given to the caller.
func TestReadsAreWhole(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	for _, fault := range []objectstest.HTTPFault{objectstest.CutBody, objectstest.ShortBody, objectstest.Garbage} {
		options := short()
		options.MaxAttempts = 3
		store, proxy := faulty(t, options)
		require.NoError(t, store.Put(t.Context(), "k", body))
		proxy.set(objectstest.Always(fault))
		_, err := store.Get(t.Context(), "k", 10, 5000)
		require.Error(t, err)
		require.ErrorContains(t, err, "attempt 3")
		_, _, err = store.GetTail(t.Context(), "k", 5000)
		require.Error(t, err)
		if fault == objectstest.Garbage {
			_, err = store.GetAll(t.Context(), "k", 1<<20)
			require.ErrorContains(t, err, "ETag")
			require.ErrorContains(t, store.Put(t.Context(), "other", body), "ETag")
		}
		proxy.set(objectstest.First(2, fault))
		got, err := store.Get(t.Context(), "k", 10, 5000)
		require.NoError(t, err)
		require.True(t, bytes.Equal(body[10:5010], got))
	}
}

// checksums plays a server that keeps the checksum of a body, as S3 does.
type checksums struct {
	next http.Handler
	mu   sync.Mutex // guards sums
	sums map[string]string
}

func (c *checksums) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const name = "X-Amz-Checksum-Crc32c"
	c.mu.Lock()
	if r.Method == http.MethodPut {
		c.sums[r.URL.Path] = r.Header.Get(name)
	} else if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" {
		w.Header().Set(name, c.sums[r.URL.Path])
	}
	c.mu.Unlock()
	c.next.ServeHTTP(w, r)
}

func TestAWrongByteIsFoundByTheChecksum(t *testing.T) {
	proxy := &objectstest.FaultProxy{}
	url := objectstest.S3Server(t,
		func(next http.Handler) http.Handler { return &checksums{next: next, sums: map[string]string{}} },
		func(next http.Handler) http.Handler { proxy.Next = next; return proxy })
	options := fast()
	options.MaxAttempts = 2
	store := open(t, url, options)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	require.NoError(t, store.Put(t.Context(), "k", body))
	for _, fault := range []objectstest.HTTPFault{objectstest.CorruptBody, objectstest.ShortBody} {
		proxy.Choose = objectstest.Always(fault)
		_, err := store.GetAll(t.Context(), "k", 1<<20)
		require.ErrorContains(t, err, "checksum")
		requests := proxy.Requests()
		proxy.Choose = objectstest.First(requests+1, fault)
		got, err := store.GetAll(t.Context(), "k", 1<<20)
		require.NoError(t, err, "the second attempt is whole")
		require.True(t, bytes.Equal(body, got))
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	for _, fault := range []objectstest.HTTPFault{objectstest.SlowDown, objectstest.NoAnswer, objectstest.Reset, objectstest.Garbage} {
		options := short()
		options.MaxAttempts = 4
		var retries int
		options.OnRetry = func(op string, err error) {
			require.Equal(t, objects.OpList, op)
			require.Error(t, err)
			retries++
		}
		store, proxy := faulty(t, options)
		proxy.set(objectstest.Always(fault))
		start := time.Now()
		_, err := store.List(t.Context(), "", "", 1)
		require.Error(t, err)
		require.NotErrorIs(t, err, context.Canceled, "it was not the caller's context that ended")
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, time.Since(start), 5*time.Second)
		require.Equal(t, 4, proxy.Requests())
		require.Equal(t, 3, retries)
	}
}

func TestTheContextEndsAnAttemptAndAPause(t *testing.T) {
	options := fast()
	options.BackoffFirst, options.BackoffMax = time.Hour, time.Hour
	for _, fault := range []objectstest.HTTPFault{objectstest.NoAnswer, objectstest.StallBody, objectstest.SlowDown} {
		store, proxy := faulty(t, options)
		require.NoError(t, store.Put(t.Context(), "k", bytes.Repeat([]byte("x"), 100000)))
		proxy.set(objectstest.Always(fault))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		start := time.Now()
		_, err := store.GetAll(ctx, "k", 1<<20)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), 3*time.Second)
	}
}

func TestALargeBodyHasMoreTime(t *testing.T) {
	options := short()
	options.MinRate = 1 << 20 // 2 MiB: two seconds more
	options.MaxAttempts = 1
	store, proxy := faulty(t, options)
	proxy.StallFor = 400 * time.Millisecond
	proxy.set(objectstest.Always(objectstest.Stall))
	require.NoError(t, store.Put(t.Context(), "k", make([]byte, 2<<20)))
	require.ErrorContains(t, store.Put(t.Context(), "k", make([]byte, 10)), "no answer in time")
}

func TestAnswersForGood(t *testing.T) {
	for fault, want := range map[objectstest.HTTPFault]error{
		objectstest.Denied:         objects.ErrDenied,
		objectstest.NotImplemented: objects.ErrUnsupported,
	} {
		store, proxy := faulty(t, fast())
		proxy.set(objectstest.Always(fault))
		require.ErrorIs(t, store.PutIfAbsent(t.Context(), "k", nil), want)
		require.Equal(t, 1, proxy.Requests(), "no second attempt")
	}
	store, proxy := faulty(t, fast())
	proxy.set(objectstest.Always(objectstest.BadRequest))
	err := store.Put(t.Context(), "k", nil)
	require.ErrorContains(t, err, "400 InvalidRequest")
	require.Equal(t, 1, proxy.Requests())
}

func TestDeleteWithoutMultiDelete(t *testing.T) {
	for _, fault := range []objectstest.HTTPFault{objectstest.NotImplemented, objectstest.BadRequest} {
		store, proxy := faulty(t, fast())
		proxy.set(func(_ int, r *http.Request) objectstest.HTTPFault {
			if r.Method == http.MethodPost {
				return fault
			}
			return objectstest.None
		})
		var keys []string
		for _, key := range []string{"a", "b", "c/d", "keep"} {
			require.NoError(t, store.Put(t.Context(), key, nil))
			keys = append(keys, key)
		}
		require.NoError(t, store.Delete(t.Context(), append(keys[:3:3], "none")...))
		infos, err := store.List(t.Context(), "", "", 10)
		require.NoError(t, err)
		require.Len(t, infos, 1)
		before := proxy.Requests()
		require.NoError(t, store.Delete(t.Context(), "x", "y"))
		require.Equal(t, before+2, proxy.Requests(), "it does not ask again")
	}
}

func TestAServerWithoutChecksums(t *testing.T) {
	url := objectstest.S3Server(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Amz-Checksum-Crc32c") != "" {
				w.WriteHeader(http.StatusNotImplemented)
				_, _ = w.Write([]byte("<Error><Code>NotImplemented</Code><Message>Header 'x-amz-checksum-crc32c' is not implemented</Message></Error>"))
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	store := open(t, url, fast())
	require.NoError(t, store.PutIfAbsent(t.Context(), "k", []byte("x")))
	require.ErrorIs(t, store.PutIfAbsent(t.Context(), "k", []byte("x")), objects.ErrExists)
}

// TestNotFoundOfAnother: a balancer's 404 is no proof that an object, or the bucket, is absent.
func TestNotFoundOfAnother(t *testing.T) {
	for _, body := range []string{"", "default backend - 404", "<html><body>404 Not Found</body></html>", "<Error><Code>NoSuchHost</Code></Error>"} {
		url := objectstest.S3Server(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(body))
			})
		})
		store := open(t, url, fast())
		_, err := store.Head(t.Context(), "k")
		require.NotErrorIs(t, err, objects.ErrNotFound)
		require.ErrorContains(t, err, "attempt 6: ")
		require.ErrorContains(t, err, "404")
		_, err = store.Get(t.Context(), "k", 0, 1)
		require.NotErrorIs(t, err, objects.ErrNotFound)
		_, _, err = store.GetTail(t.Context(), "k", 1)
		require.NotErrorIs(t, err, objects.ErrNotFound)
		_, err = store.GetAll(t.Context(), "k", 1)
		require.NotErrorIs(t, err, objects.ErrNotFound)
		require.Error(t, store.Delete(t.Context(), "k"))
		require.Error(t, checkAccess(t, store, 5*time.Second))
	}
	missing := strings.Replace(objectstest.S3Server(t), objectstest.Bucket, "no-such-bucket", 1)
	_, err := open(t, missing, fast()).Head(t.Context(), "k")
	require.ErrorIs(t, err, objects.ErrNoBucket)
}
