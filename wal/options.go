package wal

import (
	"log/slog"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/ops/settings"
	"github.com/varvedb/varve/wal/objects"
)

// Options of a Log. Sizes are bytes; a zero takes the default.
type Options struct {
	Layer   Layer
	Store   objects.Store
	Cluster string
	Node    layer.NodeRef
	Row     layer.WALRow // as RegisterNode gave it: a log without segments

	// What a log is tuned by. A zero takes the default.

	SegmentBytes int           `flag:"wal-segment-bytes" default:"8MiB" unit:"bytes" usage:"no more than this is gathered for one segment of the write-ahead log, unless one append is larger"`
	Inflight     int           `flag:"wal-inflight" default:"4" usage:"segments that are being written at once"`
	Gather       time.Duration `flag:"wal-gather" default:"20ms" usage:"how long an append waits for segments in flight before a segment of its own is cut for it; negative: until one of them has landed"`

	InlineMax      int   `flag:"wal-inline-max" default:"64KiB" unit:"bytes" usage:"the largest segment that goes to the metadata store by choice; negative: none"`
	InlineFallback int   `flag:"wal-inline-fallback" default:"512KiB" unit:"bytes" usage:"the largest segment that goes to the metadata store while the object store fails"`
	InlineBudget   int64 `flag:"wal-inline-budget" default:"16MiB" unit:"bytes" usage:"how much of the write-ahead log may lie unpacked in the metadata store"`

	BacklogSegments int64 `flag:"wal-backlog-segments" default:"16384" usage:"segments that may wait for packing before appends wait"`
	BacklogBytes    int64 `flag:"wal-backlog-bytes" default:"256MiB" unit:"bytes" usage:"bytes that may wait to be written or packed before appends wait"`

	// One attempt to store a segment may take so long before it is tried anew or in the other place.
	InlineTimeout time.Duration `flag:"wal-inline-timeout" default:"2s" usage:"time that one attempt to write a segment to the metadata store may take"`
	PutTimeout    time.Duration `flag:"wal-put-timeout" default:"15s" usage:"time that one attempt to write a segment to the object store may take"`
	VerifyTimeout time.Duration `flag:"wal-verify-timeout" default:"1s" usage:"time that one read of the node row may take before the metadata store counts as unreachable"`
	// The pause between attempts doubles from the one to the other.
	RetryMin time.Duration `flag:"wal-retry-min" default:"50ms" usage:"first pause after a segment could not be written"`
	RetryMax time.Duration `flag:"wal-retry-max" default:"5s" usage:"longest pause between attempts to write a segment"`

	Logger  *slog.Logger
	Metrics *Metrics // nil: not measured
}

func (o Options) withDefaults() Options {
	d := settings.Default[Options]()
	setDefault(&o.SegmentBytes, d.SegmentBytes)
	setDefault(&o.Inflight, d.Inflight)
	setDefault(&o.Gather, d.Gather)
	setDefault(&o.InlineMax, d.InlineMax)
	setDefault(&o.InlineFallback, d.InlineFallback)
	o.InlineFallback = min(max(o.InlineFallback, o.InlineMax), layer.MaxInlineSegment)
	o.InlineMax = min(o.InlineMax, layer.MaxInlineSegment)
	setDefault(&o.InlineBudget, d.InlineBudget)
	setDefault(&o.BacklogSegments, d.BacklogSegments)
	setDefault(&o.BacklogBytes, d.BacklogBytes)
	setDefault(&o.InlineTimeout, d.InlineTimeout)
	setDefault(&o.PutTimeout, d.PutTimeout)
	setDefault(&o.VerifyTimeout, d.VerifyTimeout)
	setDefault(&o.RetryMin, d.RetryMin)
	setDefault(&o.RetryMax, d.RetryMax)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
