package wal

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the write-ahead log.
type Metrics struct {
	segments  *prometheus.CounterVec   // by placement
	bytes     *prometheus.CounterVec   // by placement
	appends   prometheus.Histogram     // append to acknowledgement
	writes    *prometheus.HistogramVec // one answered attempt: put, inline, verify
	retries   *prometheus.CounterVec   // attempts that failed and are made again: put, inline, verify
	skipped   prometheus.Counter       // verify reads skipped, segments
	inflight  prometheus.Gauge
	backlog   *prometheus.GaugeVec // unpacked: segments, bytes, inline_bytes
	recovered *prometheus.CounterVec
}

// NewMetrics makes the collectors and registers them; a nil registerer leaves them unregistered.
func NewMetrics(r prometheus.Registerer) *Metrics {
	latency := prometheus.ExponentialBuckets(0.0005, 2, 16)
	m := &Metrics{
		segments:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_wal_segments_total", Help: "Segments made durable, by placement."}, []string{"placement"}),
		bytes:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_wal_bytes_total", Help: "Bytes of segments made durable, by placement."}, []string{"placement"}),
		appends:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "varve_wal_append_seconds", Help: "Time from an append to its acknowledgement.", Buckets: latency}),
		writes:    prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "varve_wal_write_seconds", Help: "Time of one successful object put, inline commit or verify read.", Buckets: latency}, []string{"operation"}),
		retries:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_wal_retries_total", Help: "Attempts that failed and are made again, by operation."}, []string{"operation"}),
		skipped:   prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_wal_verify_skipped_total", Help: "Segments acknowledged by the conditional put alone because the layer could not be reached."}),
		inflight:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_wal_inflight_segments", Help: "Segments being written."}),
		backlog:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "varve_wal_backlog", Help: "What is not packed yet: segments, bytes (of batches), inline_bytes (in the layer)."}, []string{"unit"}),
		recovered: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_wal_recovered_segments_total", Help: "Segments of dead nodes adopted, by placement."}, []string{"placement"}),
	}
	if r != nil {
		r.MustRegister(m.segments, m.bytes, m.appends, m.writes, m.retries, m.skipped, m.inflight, m.backlog, m.recovered)
	}
	return m
}
