package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ObjectMetrics count the calls to the object store. It serves as the observer of the store.
type ObjectMetrics struct {
	calls   *prometheus.CounterVec
	bytes   *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

// NewObjectMetrics registers the collectors.
func NewObjectMetrics(r prometheus.Registerer) *ObjectMetrics {
	m := &ObjectMetrics{
		calls:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_object_store_calls_total", Help: "Calls to the object store by operation and result (ok, error)."}, []string{"op", "result"}),
		bytes:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_object_store_bytes_total", Help: "Bytes written to and read from the object store by operation."}, []string{"op"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "varve_object_store_seconds", Help: "Time of calls to the object store, retries included.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17)}, []string{"op"}),
	}
	r.MustRegister(m.calls, m.bytes, m.latency)
	return m
}

// Observe records one call: the operation, bytes moved, time taken and its error.
func (m *ObjectMetrics) Observe(op string, bytes int, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.calls.WithLabelValues(op, result).Inc()
	m.bytes.WithLabelValues(op).Add(float64(bytes))
	m.latency.WithLabelValues(op).Observe(took.Seconds())
}
