package nodes

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvedb/varve/nodes/engine"
	"github.com/varvedb/varve/wal"
)

// Metrics of a node.
type Metrics struct {
	Streams    prometheus.Gauge
	Opens      *prometheus.CounterVec // by result
	Closes     *prometheus.CounterVec // by result
	OpenTime   prometheus.Histogram
	Heartbeats *prometheus.CounterVec // by result
	Controller prometheus.Gauge
	Fenced     prometheus.Counter
	Takeovers  *prometheus.CounterVec // by result
	Placed     prometheus.Counter
	Destroyed  prometheus.Counter
	Redirects  prometheus.Counter

	WAL    *wal.Metrics
	Engine *engine.Metrics
}

// NewMetrics makes the collectors and registers them; a nil registerer registers nothing.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "varve", Subsystem: "node", Name: name, Help: help})
	}
	byResult := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "varve", Subsystem: "node", Name: name, Help: help}, []string{"result"})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "varve", Subsystem: "node", Name: name, Help: help})
	}
	m := &Metrics{
		Streams:    gauge("streams", "Streams open on this node."),
		Opens:      byResult("stream_opens_total", "Streams opened by this node, by result."),
		Closes:     byResult("stream_closes_total", "Streams closed by this node, by result."),
		OpenTime:   prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "varve", Subsystem: "node", Name: "stream_open_seconds", Help: "Time to open a stream.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}),
		Heartbeats: byResult("heartbeats_total", "Heartbeats of this node, by result."),
		Controller: gauge("controller", "1 while this node holds the coordinator lease."),
		Fenced:     counter("fenced_nodes_total", "Nodes that this node fenced as the lease holder."),
		Takeovers:  byResult("takeovers_total", "Dead node epochs that this node recovered, by result."),
		Placed:     counter("placed_streams_total", "Streams that this node gave a leader as the lease holder."),
		Destroyed:  counter("destroyed_objects_total", "Objects that this node deleted as the lease holder."),
		Redirects:  counter("redirects_total", "Requests for streams that another node leads."),
		WAL:        wal.NewMetrics(registerer),
		Engine:     engine.NewMetrics(registerer),
	}
	if registerer != nil {
		registerer.MustRegister(m.Streams, m.Opens, m.Closes, m.OpenTime, m.Heartbeats, m.Controller, m.Fenced, m.Takeovers, m.Placed, m.Destroyed, m.Redirects)
	}
	return m
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
