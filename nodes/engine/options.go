package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/ops/settings"
)

// Options of an engine. Flags, environment and file are generated from the tags. Sizes are bytes. Together they bound the memory of an
// engine: the log's backlog, BlockCacheBytes, IndexCacheBytes, ReadaheadBytes, about twice PackObjectBytes for each parallel upload,
// and MergeObjectBytes twice.
type Options struct {
	PackBytes          int64         `flag:"pack-bytes" default:"64MiB" unit:"bytes" usage:"bytes in the write-ahead log at which they are packed into data objects"`
	PackInterval       time.Duration `flag:"pack-interval" default:"10s" usage:"age at which the write-ahead log is packed however little it holds"`
	PackSegments       int           `flag:"pack-segments" default:"256" usage:"number of write-ahead log segments in the object store at which they are packed: a recoverer reads each"`
	PackInlineSegments int           `flag:"pack-inline-segments" default:"8192" usage:"number of write-ahead log segments, wherever they are, at which they are packed"`
	PackInlineBytes    int64         `flag:"pack-inline-bytes" default:"8MiB" unit:"bytes" usage:"bytes of write-ahead log in the metadata store at which it is packed; less than wal-inline-budget"`
	PackMaxBytes       int64         `flag:"pack-max-bytes" default:"256MiB" unit:"bytes" usage:"the most bytes that one pack takes"`
	PackObjectBytes    int64         `flag:"pack-object-bytes" default:"64MiB" unit:"bytes" usage:"target size of a data object"`
	PackAloneBytes     int64         `flag:"pack-alone-bytes" default:"8MiB" unit:"bytes" usage:"a stream with at least this much in one pack gets data objects of its own"`
	PackAdoptBytes     int64         `flag:"pack-adopt-bytes" default:"512KiB" unit:"bytes" usage:"a stream that has at least this much on average in each write-ahead log segment of a pack is not written again: its index points into the segments"`
	PackParallel       int           `flag:"pack-parallel" default:"4" usage:"data objects that are uploaded at the same time"`
	PutTimeout         time.Duration `flag:"pack-put-timeout" default:"1m" usage:"time that one try to upload a data object may take"`
	BlockBytes         int           `flag:"block-bytes" default:"1MiB" unit:"bytes" usage:"target size of a block of a data object: the unit of reading and caching"`

	BlockCacheBytes int64         `flag:"block-cache-bytes" default:"256MiB" unit:"bytes" usage:"memory for blocks of data objects"`
	IndexCacheBytes int64         `flag:"index-cache-bytes" default:"32MiB" unit:"bytes" usage:"memory for block indexes, and as much again for index entries"`
	ReadaheadBytes  int64         `flag:"readahead-bytes" default:"128MiB" unit:"bytes" usage:"memory for blocks fetched ahead of sequential readers, all readers together"`
	ReadaheadWindow int64         `flag:"readahead-window" default:"32MiB" unit:"bytes" usage:"how far ahead of one sequential reader blocks are fetched"`
	FetchBytes      int64         `flag:"fetch-bytes" default:"4MiB" unit:"bytes" usage:"the most that one ranged read of the object store asks for when it fetches ahead"`
	FetchParallel   int           `flag:"fetch-parallel" default:"32" usage:"ranged reads of the object store at the same time"`
	FetchTimeout    time.Duration `flag:"fetch-timeout" default:"30s" usage:"time that one ranged read may take, retries included"`
	LookupTimeout   time.Duration `flag:"lookup-timeout" default:"5s" usage:"time that a read waits for the index of a stream; then it is told to try again"`

	RetentionInterval  time.Duration `flag:"retention-interval" default:"30s" usage:"how often retention.ms and retention.bytes are applied"`
	ProducerExpiry     time.Duration `flag:"producer-id-expiration" default:"24h" usage:"a producer that has appended nothing for this long is forgotten (Kafka: producer.id.expiration.ms)"`
	HTTPProducerExpiry time.Duration `flag:"http-producer-expiration" default:"168h" usage:"the same for HTTP producers"`
	MaxProducers       int           `flag:"max-producers" default:"100000" usage:"producers remembered for each stream; beyond it those that were idle longest are forgotten"`
	HousekeepInterval  time.Duration `flag:"housekeep-interval" default:"10s" usage:"how often idle readahead is freed and producers are looked through"`

	MergeInterval    time.Duration `flag:"merge-interval" default:"30s" usage:"how often small data objects are looked for; 0 merges nothing"`
	MergeBelowBytes  int64         `flag:"merge-below-bytes" default:"8MiB" unit:"bytes" usage:"what a stream has in one data object is small below this size"`
	MergeObjectBytes int64         `flag:"merge-object-bytes" default:"64MiB" unit:"bytes" usage:"target size of a merged data object"`
	MergeRun         int           `flag:"merge-run" default:"8" usage:"adjacent small index entries of one stream that make a merge worth while"`
	MergeRate        int64         `flag:"merge-rate" default:"64MiB" unit:"bytes" usage:"bytes a second that merging may read"`

	RetryMin time.Duration `flag:"engine-retry-min" default:"50ms" usage:"first pause after the object store or the metadata failed a background step"`
	RetryMax time.Duration `flag:"engine-retry-max" default:"5s" usage:"longest pause between two tries of a background step"`
}

// DefaultOptions are the defaults of the tags.
func DefaultOptions() Options { return settings.Default[Options]() }

// Validate names every option that cannot work.
func (o Options) Validate() error {
	var errs []error
	positive := func(name string, value int64) {
		if value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %d, want more than 0", name, value))
		}
	}
	positive("pack-bytes", o.PackBytes)
	positive("pack-interval", int64(o.PackInterval))
	positive("pack-segments", int64(o.PackSegments))
	positive("pack-inline-segments", int64(o.PackInlineSegments))
	positive("pack-inline-bytes", o.PackInlineBytes)
	positive("pack-object-bytes", o.PackObjectBytes)
	positive("pack-alone-bytes", o.PackAloneBytes)
	positive("pack-adopt-bytes", o.PackAdoptBytes)
	positive("pack-parallel", int64(o.PackParallel))
	positive("pack-put-timeout", int64(o.PutTimeout))
	positive("block-bytes", int64(o.BlockBytes))
	positive("block-cache-bytes", o.BlockCacheBytes)
	positive("index-cache-bytes", o.IndexCacheBytes)
	positive("fetch-bytes", o.FetchBytes)
	positive("fetch-parallel", int64(o.FetchParallel))
	positive("fetch-timeout", int64(o.FetchTimeout))
	positive("lookup-timeout", int64(o.LookupTimeout))
	positive("retention-interval", int64(o.RetentionInterval))
	positive("producer-id-expiration", int64(o.ProducerExpiry))
	positive("http-producer-expiration", int64(o.HTTPProducerExpiry))
	positive("max-producers", int64(o.MaxProducers))
	positive("housekeep-interval", int64(o.HousekeepInterval))
	positive("merge-below-bytes", o.MergeBelowBytes)
	positive("merge-object-bytes", o.MergeObjectBytes)
	positive("merge-rate", o.MergeRate)
	positive("engine-retry-min", int64(o.RetryMin))
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.PackMaxBytes < o.PackBytes, "pack-max-bytes is %d, want at least pack-bytes (%d)", o.PackMaxBytes, o.PackBytes)
	refuse(o.ReadaheadBytes < 0, "readahead-bytes is %d, want at least 0", o.ReadaheadBytes)
	refuse(o.ReadaheadWindow < 0, "readahead-window is %d, want at least 0", o.ReadaheadWindow)
	refuse(o.MergeInterval < 0, "merge-interval is %v, want at least 0", o.MergeInterval)
	refuse(o.MergeRun < 2, "merge-run is %d, want at least 2", o.MergeRun)
	refuse(o.RetryMax < o.RetryMin, "engine-retry-max is %v, want at least engine-retry-min (%v)", o.RetryMax, o.RetryMin)
	return errors.Join(errs...)
}

// TableOptions are what the engine obeys of a table's options.
type TableOptions struct {
	Retention      time.Duration // records whose batch or object is older are removed; negative keeps them for ever
	RetentionBytes int64         // the oldest objects beyond this size of a stream are removed; negative sets no bound
	LogAppendTime  bool          // batches get the time of their append as timestamp (message.timestamp.type)
}

// Tables tells the options of a table. It is called often, from several goroutines, and must be cheap: it reads a view.
type Tables interface {
	TableOptions(table int64) TableOptions
}
