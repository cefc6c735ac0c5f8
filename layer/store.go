package layer

import (
	"context"
	"time"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// Store runs commands on the metadata of one cluster. It has no state but id blocks, and is safe for use by several goroutines.
type Store struct {
	db       kv.Database
	cluster  string
	prefix   []byte
	now      func() time.Time
	tableIDs *IDs
	streamID *IDs
}

// Option changes how Open works.
type Option func(*Store)

// WithSubspace puts all keys below prefix, for databases shared with other applications.
func WithSubspace(prefix tuple.Tuple) Option {
	return func(s *Store) { s.prefix = prefix.Pack() }
}

// WithClock sets the clock that stamps rows of the destroy queue; nothing else reads it. The default is time.Now.
func WithClock(now func() time.Time) Option {
	return func(s *Store) { s.now = now }
}

// Open gives the metadata of cluster in db, and writes the format row when there is none. ErrNewerFormat when a newer binary wrote it.
// The caller keeps and closes db.
func Open(ctx context.Context, db kv.Database, cluster string, options ...Option) (*Store, error) {
	return nil, errNotWritten
}

// Cluster is the name given to Open.
func (s *Store) Cluster() string { return s.cluster }
