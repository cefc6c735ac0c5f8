package streams

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of the HTTP listener.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	live     *prometheus.GaugeVec
	bytesIn  prometheus.Counter
	bytesOut prometheus.Counter
}

// NewMetrics makes the collectors and registers them with r, which may be nil in tests.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_http_requests_total", Help: "HTTP requests for streams by method, live mode and status."}, []string{"method", "live", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "varve_http_request_seconds",
			Help: "Time of HTTP requests for streams that do not wait for data.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)}, []string{"method"}),
		live:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "varve_http_live_readers", Help: "Readers that wait for data, by mode."}, []string{"mode"}),
		bytesIn:  prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_http_append_bytes_total", Help: "Bytes of bodies appended over HTTP."}),
		bytesOut: prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_http_read_bytes_total", Help: "Bytes of stream data answered over HTTP."}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.seconds, m.live, m.bytesIn, m.bytesOut)
	}
	return m
}

func (m *Metrics) request(method, live string, status int, took time.Duration) {
	switch live {
	case liveLongPoll, liveSSE:
	default:
		live = "none"
		m.seconds.WithLabelValues(method).Observe(took.Seconds())
	}
	m.requests.WithLabelValues(method, live, strconv.Itoa(status)).Inc()
}
