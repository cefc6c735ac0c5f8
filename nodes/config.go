package nodes

import (
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/engine"
	"github.com/varvedb/varve/ops/settings"
	"github.com/varvedb/varve/wal"
)

// Options of a node. Flags, environment and file are generated from the tags.
type Options struct {
	NodeID          int64  `flag:"node-id" default:"1" usage:"id of this node, at least 1; keep it over restarts, and give it to no other process"`
	AdvertisedKafka string // host:port that Kafka clients are told to connect to; empty when Kafka is not served
	AdvertisedHTTP  string // host:port that HTTP clients are redirected to; empty when HTTP is not served
	AdvertisedAdmin string // host:port of the admin API, for the other nodes' tools
	Slots           int    `flag:"slots" default:"1" usage:"weight of this node in placement; 0 places no streams on it; what varve cluster drain or set-slots said goes before it"`
	Rack            string `flag:"rack" default:"" usage:"failure domain of this node, told to clients"`
	Version         string // of the program, shown in the node's row

	HeartbeatInterval time.Duration `flag:"heartbeat-interval" default:"5s" usage:"time between two heartbeats of this node"`
	NodeTimeout       time.Duration `flag:"node-timeout" default:"30s" usage:"a node whose heartbeats the lease holder has not seen for this long, counted in the holder's own heartbeats, is fenced; must be greater than the heartbeat interval"`
	LeaseTTL          time.Duration `flag:"lease-ttl" default:"10s" usage:"a lease that was not renewed for this long may be taken by another node"`
	DetectorInterval  time.Duration `flag:"detector-interval" default:"1s" usage:"how often a node looks at the heartbeats of the others; the lease holder fences the dead"`
	CoordinatorTick   time.Duration `flag:"coordinator-tick" default:"5s" usage:"how often the lease holder looks for streams to recover and to place"`
	LifecycleInterval time.Duration `flag:"lifecycle-interval" default:"30s" usage:"how often the lease holder reclaims what was deleted, expired and trimmed"`

	SyncInterval    time.Duration `flag:"sync-interval" default:"5s" usage:"how often this node compares its view with what it serves, besides at each change"`
	SyncConcurrency int           `flag:"sync-concurrency" default:"64" usage:"streams that are opened and closed at the same time"`
	OpenWait        time.Duration `flag:"open-wait" default:"5s" usage:"how long a request waits for a stream that is being opened here"`
	ShutdownDrain   time.Duration `flag:"shutdown-drain" default:"0s" usage:"time between failing readiness and refusing requests, for load balancers to notice"`

	PreparedTTL   time.Duration `flag:"prepared-ttl" default:"1h" usage:"age at which an object that was announced and never committed is destroyed"`
	DestroyGrace  time.Duration `flag:"destroy-grace" default:"5m" usage:"time that readers have to finish with an object between its removal from the index and its deletion"`
	LogKeep       time.Duration `flag:"log-keep" default:"1h" usage:"age at which records of the metadata log are removed; a node that fell further behind reads the rows anew"`
	SweepInterval time.Duration `flag:"sweep-interval" default:"10m" usage:"how often what dead nodes left in the object store is swept"`

	Fence layer.FenceMode `flag:"wal-fence" default:"" usage:"how the write-ahead log is fenced: both, store or layer; empty lets a probe of the object store decide"`

	MaxBuckets int `flag:"max-buckets" default:"10000" usage:"the most buckets that a table can have"`

	WAL    wal.Options // what it is tuned by; the node sets the rest
	Engine engine.Options
}

// DefaultOptions are the defaults of the tags.
func DefaultOptions() Options { return settings.Default[Options]() }

// Validate names every option that cannot work.
func (o Options) Validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.NodeID < 1, "node-id is %d, want at least 1", o.NodeID)
	refuse(o.Slots < 0, "slots is %d, want at least 0", o.Slots)
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"heartbeat-interval", o.HeartbeatInterval}, {"lease-ttl", o.LeaseTTL}, {"detector-interval", o.DetectorInterval},
		{"coordinator-tick", o.CoordinatorTick}, {"lifecycle-interval", o.LifecycleInterval}, {"sync-interval", o.SyncInterval},
		{"open-wait", o.OpenWait}, {"prepared-ttl", o.PreparedTTL}, {"log-keep", o.LogKeep}, {"sweep-interval", o.SweepInterval},
	} {
		refuse(d.value <= 0, "%s is %v, want more than 0", d.name, d.value)
	}
	refuse(o.NodeTimeout <= o.HeartbeatInterval, "node-timeout is %v, want more than heartbeat-interval (%v): every node would be fenced between two heartbeats", o.NodeTimeout, o.HeartbeatInterval)
	refuse(o.DestroyGrace < 0, "destroy-grace is %v, want at least 0", o.DestroyGrace)
	refuse(o.ShutdownDrain < 0, "shutdown-drain is %v, want at least 0", o.ShutdownDrain)
	refuse(o.SyncConcurrency < 1, "sync-concurrency is %d, want at least 1", o.SyncConcurrency)
	refuse(o.MaxBuckets < 1, "max-buckets is %d, want at least 1", o.MaxBuckets)
	refuse(o.MaxBuckets > layer.MaxBuckets, "max-buckets is %d, want at most %d", o.MaxBuckets, layer.MaxBuckets)
	switch o.Fence {
	case "", layer.FenceBoth, layer.FenceStore, layer.FenceLayer:
	default:
		refuse(true, "wal-fence is %q, want both, store or layer", o.Fence)
	}
	errs = append(errs, o.Engine.Validate())
	return errors.Join(errs...)
}

// deadAfter is how many heartbeats of the lease holder a node may miss: ceil(node timeout / heartbeat interval).
func (o Options) deadAfter() int64 {
	return int64((o.NodeTimeout + o.HeartbeatInterval - 1) / o.HeartbeatInterval)
}
