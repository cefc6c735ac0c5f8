package engine

import "github.com/prometheus/client_golang/prometheus"

// Metrics of an engine.
type Metrics struct {
	Appends        *prometheus.CounterVec // by result: ok, duplicate, refused, failed
	AppendBytes    prometheus.Counter
	AppendRecords  prometheus.Counter
	Reads          prometheus.Counter
	ReadBytes      prometheus.Counter
	CacheLookups   *prometheus.CounterVec // by cache (log, block, readahead, index, entries) and result (hit, miss)
	ObjectBytes    *prometheus.CounterVec // by direction (read, written) and purpose (fetch, pack, merge)
	PackedBytes    *prometheus.CounterVec // by how: adopted, copied
	PackSeconds    prometheus.Histogram
	PackFailures   prometheus.Counter
	Packs          prometheus.Counter
	MergedEntries  prometheus.Counter
	TrimmedStreams prometheus.Counter
	Corruptions    prometheus.Counter
	StreamsOpen    prometheus.Gauge
	UnpackedBytes  prometheus.Gauge
	ReadaheadBytes prometheus.Gauge

	appends                                      appendCounters
	logHit, blockHit, blockMiss, aheadHit        prometheus.Counter
	indexHit, indexMiss, entriesHit, entriesMiss prometheus.Counter
	fetched, packed, merged, mergeRead           prometheus.Counter
	packedAdopted, packedCopied                  prometheus.Counter
}

// appendCounters are Appends by result.
type appendCounters struct{ ok, duplicate, refused, failed prometheus.Counter }

// NewMetrics makes the metrics and registers them; a nil registerer registers nothing.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "varve", Subsystem: "engine", Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "varve", Subsystem: "engine", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "varve", Subsystem: "engine", Name: name, Help: help})
	}
	m := &Metrics{
		Appends:       vector("appends_total", "Appends by result.", "result"),
		AppendBytes:   counter("append_bytes_total", "Bytes of batches that became durable."),
		AppendRecords: counter("append_records_total", "Records that became durable."),
		Reads:         counter("reads_total", "Reads that were served."),
		ReadBytes:     counter("read_bytes_total", "Bytes of batches that were served."),
		CacheLookups:  vector("cache_lookups_total", "Look-ups in the log cache, the block cache, the readahead and the index caches.", "cache", "result"),
		ObjectBytes:   vector("object_bytes_total", "Bytes read from and written to the object store.", "direction", "purpose"),
		PackedBytes:   vector("packed_bytes_total", "Bytes of batches that left the write-ahead log: adopted in the segments where they lay, or copied into data objects.", "how"),
		PackSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "varve", Subsystem: "engine", Name: "pack_seconds",
			Help: "Time of a pack, from the choice of segments to the commit.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}),
		PackFailures:   counter("pack_failures_total", "Packs that failed and were tried again."),
		Packs:          counter("packs_total", "Packs that were committed."),
		MergedEntries:  counter("merged_entries_total", "Small index entries that were replaced by merged ones."),
		TrimmedStreams: counter("trims_total", "Times that the start of a stream was moved."),
		Corruptions:    counter("corruptions_total", "Blocks and indexes of objects that failed their checks."),
		StreamsOpen:    gauge("streams_open", "Streams that are open here."),
		UnpackedBytes:  gauge("unpacked_bytes", "Bytes of batches in the log cache."),
		ReadaheadBytes: gauge("readahead_bytes", "Bytes fetched ahead of readers, or being fetched."),
	}
	m.resolve()
	if registerer != nil {
		registerer.MustRegister(m.Appends, m.AppendBytes, m.AppendRecords, m.Reads, m.ReadBytes, m.CacheLookups, m.ObjectBytes, m.PackedBytes, m.PackSeconds,
			m.PackFailures, m.Packs, m.MergedEntries, m.TrimmedStreams, m.Corruptions, m.StreamsOpen, m.UnpackedBytes, m.ReadaheadBytes)
	}
	return m
}

// resolve looks the labelled counters up once: appends and reads count often.
func (m *Metrics) resolve() {
	m.appends = appendCounters{
		ok: m.Appends.WithLabelValues("ok"), duplicate: m.Appends.WithLabelValues("duplicate"),
		refused: m.Appends.WithLabelValues("refused"), failed: m.Appends.WithLabelValues("failed"),
	}
	cache := m.CacheLookups.WithLabelValues
	m.logHit, m.aheadHit = cache("log", "hit"), cache("readahead", "hit")
	m.blockHit, m.blockMiss = cache("block", "hit"), cache("block", "miss")
	m.indexHit, m.indexMiss = cache("index", "hit"), cache("index", "miss")
	m.entriesHit, m.entriesMiss = cache("entries", "hit"), cache("entries", "miss")
	bytes := m.ObjectBytes.WithLabelValues
	m.fetched, m.packed, m.merged, m.mergeRead = bytes("read", "fetch"), bytes("written", "pack"), bytes("written", "merge"), bytes("read", "merge")
	m.packedAdopted, m.packedCopied = m.PackedBytes.WithLabelValues("adopted"), m.PackedBytes.WithLabelValues("copied")
}
