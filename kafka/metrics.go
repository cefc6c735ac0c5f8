package kafka

import "github.com/prometheus/client_golang/prometheus"

// Metrics of a listener.
type Metrics struct {
	Connections    prometheus.Gauge
	Refused        prometheus.Counter
	Malformed      prometheus.Counter
	Requests       *prometheus.CounterVec   // by api
	RequestSeconds *prometheus.HistogramVec // by api
	Errors         *prometheus.CounterVec   // by api and Kafka error name
	ReceivedBytes  prometheus.Counter
	SentBytes      prometheus.Counter
}

// NewMetrics makes the metrics and registers them; a nil registerer registers nothing.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "varve", Subsystem: "kafka", Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "varve", Subsystem: "kafka", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Connections: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "varve", Subsystem: "kafka", Name: "connections", Help: "Connections that are open."}),
		Refused:     counter("connections_refused_total", "Connections closed at once because there were too many."),
		Malformed:   counter("malformed_total", "Connections closed because of bytes that are not a request that is served."),
		Requests:    vector("requests_total", "Requests that were answered, by API.", "api"),
		RequestSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "varve", Subsystem: "kafka", Name: "request_seconds",
			Help: "Time from the arrival of a request until its answer is sent, by API. Fetch counts its waiting.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)}, []string{"api"}),
		Errors:        vector("errors_total", "Errors in answers, by API and Kafka's name of the error; one request can have many.", "api", "error"),
		ReceivedBytes: counter("received_bytes_total", "Bytes of requests."),
		SentBytes:     counter("sent_bytes_total", "Bytes of responses."),
	}
	if registerer != nil {
		registerer.MustRegister(m.Connections, m.Refused, m.Malformed, m.Requests, m.RequestSeconds, m.Errors, m.ReceivedBytes, m.SentBytes)
	}
	return m
}
