package kvtest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/faults"
)

func TestMain(m *testing.M) { Main(m) }

// clock is a clock that the suite moves.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) Age(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// agingDB is an engine with its clock.
type agingDB struct {
	*embedded.DB
	*clock
}

func openAging(t testing.TB, options embedded.Options) agingDB {
	c := &clock{}
	options.Now = c.now
	return agingDB{OpenEmbedded(t, options), c}
}

func TestEmbeddedInMemory(t *testing.T) {
	Run(t, func(t *testing.T) kv.Database { return openAging(t, embedded.Options{}) })
}

func TestEmbeddedOnDisk(t *testing.T) {
	Run(t, func(t *testing.T) kv.Database {
		c := &clock{}
		db, err := embedded.Open(t.TempDir(), embedded.Options{Now: c.now})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return agingDB{db, c}
	})
}

// The clusters of the environment, or the embedded engine under the real clock.
func TestOpened(t *testing.T) {
	Run(t, func(t *testing.T) kv.Database { return Open(t) })
}

// The suite allows for what may happen on a cluster, so it has to pass with faults, too.
func TestEmbeddedWithFaults(t *testing.T) {
	Run(t, func(t *testing.T) kv.Database {
		seed := uint64(time.Now().UnixNano())
		t.Logf("faults have seed %d", seed)
		db := openAging(t, embedded.Options{})
		return agingFaults{faults.Wrap(db, seed, faults.Rates{Conflict: 0.02, TooOld: 0.02, UnknownLost: 0.02, UnknownCommitted: 0.02}), db.clock}
	})
}

type agingFaults struct {
	*faults.Database
	*clock
}

// recorder is a testing.TB that notes failures instead of failing.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

func (r *recorder) FailNow() { runtime.Goexit() }

// outcome runs a check against db and gives what it complained about.
func outcome(t *testing.T, c check, db kv.Database) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.on(r, db)
	}()
	<-done
	return r.failures
}

// An engine that does not look for phantoms must not get through, or the suite decides nothing.
func TestEngineWithoutPhantomChecksFails(t *testing.T) {
	failed := map[string]bool{}
	for _, c := range append(phantomChecks(), serializableChecks()...) {
		failures := outcome(t, c, openAging(t, embedded.Options{UnsafeSkipPhantomChecks: true}))
		failed[c.name] = len(failures) > 0
		require.Empty(t, outcome(t, c, openAging(t, embedded.Options{})), "%s, with phantom checks", c.name)
	}
	for name, got := range failed {
		needsPhantoms := strings.HasPrefix(name, "phantoms/") || name == "serializable/write skew over ranges"
		require.Equal(t, needsPhantoms, got, name)
	}
}
