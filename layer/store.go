// Package layer keeps the metadata of a cluster in keyspaces, and changes it by commands of one transaction each. README.md lists both.
package layer

import (
	"context"
	"time"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// Store runs commands on the metadata of one cluster. It has no state but blocks of ids, and is safe for use by several goroutines.
type Store struct {
	db        kv.Database
	cluster   string
	prefix    []byte
	now       func() time.Time
	bounds    bounds
	tableIDs  *IDs
	streamIDs *IDs
}

// bounds is how much one transaction does, so that it stays well under kv.TargetTransactionSize. Tests lower them.
type bounds struct {
	buckets        int // streams created or marked
	parts          int // bytes of a pack or adoption, as estimated
	trimEntries    int // index entries cleared by a trim
	destroyStreams int // streams destroyed
	destroyEntries int // index entries cleared of all of them
}

func defaultBounds() bounds {
	return bounds{buckets: 256, parts: 500_000, trimEntries: 250, destroyStreams: 64, destroyEntries: 512}
}

// Option changes how Open works.
type Option func(*Store)

// WithSubspace puts all keys below a tuple, for databases that are shared with other applications.
func WithSubspace(prefix tuple.Tuple) Option {
	return func(s *Store) { s.prefix = prefix.Pack() }
}

// WithClock sets the clock that stamps rows of the destroy queue; nothing else reads it. The default is time.Now.
func WithClock(now func() time.Time) Option {
	return func(s *Store) { s.now = now }
}

// idBlock is how many table or stream ids a process takes at a time.
const idBlock = 256

// Open gives the metadata of cluster in db, and writes the format row when there is none. ErrNewerFormat when a newer binary wrote it.
// The caller keeps and closes db.
func Open(ctx context.Context, db kv.Database, cluster string, options ...Option) (*Store, error) {
	s, err := New(db, cluster, options...)
	if err != nil {
		return nil, err
	}
	return s, s.EnsureFormat(ctx)
}

// New is Open without looking at the database: EnsureFormat does, and comes before any other use.
func New(db kv.Database, cluster string, options ...Option) (*Store, error) {
	if cluster == "" || len(cluster) > 100 {
		return nil, invalid("cluster name %.120q of %d bytes, 1 to 100 fit", cluster, len(cluster))
	}
	s := &Store{db: db, cluster: cluster, now: time.Now, bounds: defaultBounds()}
	for _, option := range options {
		option(s)
	}
	s.prefix = tuple.Tuple{"varve", cluster}.Append(s.prefix)
	s.tableIDs, s.streamIDs = NewIDs(s, "table", idBlock), NewIDs(s, "stream", idBlock)
	return s, nil
}

// Cluster is the name given to Open.
func (s *Store) Cluster() string { return s.cluster }
