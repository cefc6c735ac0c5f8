package wal

import (
	"log/slog"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects"
)

// Options of a Log. Sizes are bytes; a zero takes the default.
type Options struct {
	Layer   Layer
	Store   objects.Store
	Cluster string
	Node    layer.NodeRef
	Row     layer.WALRow // as RegisterNode gave it: a log without segments

	// SegmentBytes: no more than this is gathered for one segment, unless one append is larger. Default 8 MiB.
	SegmentBytes int
	// Inflight: how many segments are being written at once. Default 4.
	Inflight int
	// Gather: how long an append waits for segments in flight before a segment of its own is cut for it, while Inflight allows.
	// Negative: until one of them has landed. Default 20 ms.
	Gather time.Duration

	// InlineMax: the largest segment that goes to the layer by choice. Default 64 KiB; negative: none.
	InlineMax int
	// InlineFallback: the largest segment that goes to the layer while the object store fails. Default 512 KiB, at most layer.MaxInlineSegment.
	InlineFallback int
	// InlineBudget: how much of this log may lie unpacked in the layer. Default 16 MiB.
	InlineBudget int64

	// BacklogSegments: how many segments may wait for packing. Default 512.
	BacklogSegments int64
	// BacklogBytes: how much may wait for packing, or to be written, before Reserve waits. Default 256 MiB.
	BacklogBytes int64

	// InlineTimeout and PutTimeout: how long one attempt to store a segment may take before it is tried anew or in the other place.
	// Defaults 2 s and 15 s.
	InlineTimeout, PutTimeout time.Duration
	// VerifyTimeout: how long one read of the node row may take before the layer counts as unreachable. Default 1 s.
	VerifyTimeout time.Duration
	// RetryMin and RetryMax bound the pause between attempts; it doubles. Defaults 50 ms and 5 s.
	RetryMin, RetryMax time.Duration

	Logger  *slog.Logger
	Metrics *Metrics // nil: not measured
}

func (o Options) withDefaults() Options {
	setDefault(&o.SegmentBytes, 8<<20)
	setDefault(&o.Inflight, 4)
	setDefault(&o.Gather, 20*time.Millisecond)
	setDefault(&o.InlineMax, 64<<10)
	setDefault(&o.InlineFallback, 512<<10)
	o.InlineFallback = min(max(o.InlineFallback, o.InlineMax), layer.MaxInlineSegment)
	o.InlineMax = min(o.InlineMax, layer.MaxInlineSegment)
	setDefault(&o.InlineBudget, 16<<20)
	setDefault(&o.BacklogSegments, 512)
	setDefault(&o.BacklogBytes, 256<<20)
	setDefault(&o.InlineTimeout, 2*time.Second)
	setDefault(&o.PutTimeout, 15*time.Second)
	setDefault(&o.VerifyTimeout, time.Second)
	setDefault(&o.RetryMin, 50*time.Millisecond)
	setDefault(&o.RetryMax, 5*time.Second)
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
