package wal

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the write-ahead log.
type Metrics struct {
	segments, bytes *prometheus.CounterVec // by placement
	appends         prometheus.Histogram
	writes          *prometheus.HistogramVec
	retries         *prometheus.CounterVec // by operation: put, inline, verify
	skipped         prometheus.Counter
	inflight        prometheus.Gauge
	backlog         *prometheus.GaugeVec
	recovered       *prometheus.CounterVec // by placement

	// Children that every segment touches.
	putSeconds, inlineSeconds, verifySeconds     prometheus.Observer
	backlogSegments, backlogBytes, backlogInline prometheus.Gauge
	inline, object                               placement
}

type placement struct{ segments, bytes prometheus.Counter }

// NewMetrics makes the collectors and registers them; a nil registerer leaves them unregistered.
func NewMetrics(r prometheus.Registerer) *Metrics {
	latency := prometheus.ExponentialBuckets(0.0005, 2, 16)
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &Metrics{
		segments:  counters("varve_wal_segments_total", "Segments made durable, by placement: inline or object.", "placement"),
		bytes:     counters("varve_wal_bytes_total", "Bytes of segments made durable, by placement: inline or object.", "placement"),
		appends:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "varve_wal_append_seconds", Help: "Time from an append to its acknowledgement.", Buckets: latency}),
		writes:    prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "varve_wal_write_seconds", Help: "Time of one write of a segment that succeeded, by operation: put, inline or verify.", Buckets: latency}, []string{"operation"}),
		retries:   counters("varve_wal_retries_total", "Attempts to write a segment that failed, by operation: put, inline or verify.", "operation"),
		skipped:   prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_wal_verify_skipped_total", Help: "Segments acknowledged by the conditional put alone, because the metadata database could not be reached."}),
		inflight:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_wal_inflight_segments", Help: "Segments being written."}),
		backlog:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "varve_wal_backlog", Help: "What waits to be packed: segments, bytes of batches, inline bytes in the metadata database."}, []string{"unit"}),
		recovered: counters("varve_wal_recovered_segments_total", "Segments of dead nodes that were adopted, by placement: inline or object.", "placement"),
	}
	m.putSeconds, m.inlineSeconds, m.verifySeconds = m.writes.WithLabelValues("put"), m.writes.WithLabelValues("inline"), m.writes.WithLabelValues("verify")
	m.backlogSegments, m.backlogBytes, m.backlogInline = m.backlog.WithLabelValues("segments"), m.backlog.WithLabelValues("bytes"), m.backlog.WithLabelValues("inline_bytes")
	m.inline = placement{m.segments.WithLabelValues("inline"), m.bytes.WithLabelValues("inline")}
	m.object = placement{m.segments.WithLabelValues("object"), m.bytes.WithLabelValues("object")}
	if r != nil {
		r.MustRegister(m.segments, m.bytes, m.appends, m.writes, m.retries, m.skipped, m.inflight, m.backlog, m.recovered)
	}
	return m
}

func (m *Metrics) landed(f *flight) {
	p := m.object
	if f.inline {
		p = m.inline
	}
	p.segments.Inc()
	p.bytes.Add(float64(f.size))
}
