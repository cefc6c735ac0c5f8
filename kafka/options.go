package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/ops/settings"
)

// Options of a listener. Flags, environment and file are generated from the tags. Sizes are bytes.
type Options struct {
	MaxRequestBytes      int           `flag:"kafka-max-request-bytes" default:"100MiB" unit:"bytes" usage:"the largest Produce request accepted (Kafka: socket.request.max.bytes)"`
	MaxOtherRequestBytes int           `flag:"kafka-max-other-request-bytes" default:"8MiB" unit:"bytes" usage:"the largest request of any other kind accepted; what one decodes to is up to about 40 times as large"`
	MaxConnections       int           `flag:"kafka-max-connections" default:"10000" usage:"connections held at the same time; more are closed at once (Kafka: max.connections)"`
	InflightRequests     int           `flag:"kafka-inflight-requests" default:"64" usage:"requests of one connection that are read before the first of them is answered"`
	InflightBytes        int           `flag:"kafka-inflight-bytes" default:"128MiB" unit:"bytes" usage:"bytes of requests and unsent responses of one connection beyond which no more requests are read"`
	IdleTimeout          time.Duration `flag:"kafka-idle-timeout" default:"10m" usage:"a connection without requests for this long is closed (Kafka: connections.max.idle.ms)"`
	ReadTimeout          time.Duration `flag:"kafka-read-timeout" default:"30s" usage:"a connection that sends nothing for this long in the middle of a request is closed"`
	WriteTimeout         time.Duration `flag:"kafka-write-timeout" default:"30s" usage:"a connection that takes nothing of a response for this long is closed"`
	MaxFetchBytes        int           `flag:"kafka-max-fetch-bytes" default:"55MiB" unit:"bytes" usage:"the most record bytes in one Fetch response, but for a first batch that is larger (Kafka: fetch.max.bytes)"`
	MaxDecompressedBytes int           `flag:"kafka-max-decompressed-bytes" default:"256MiB" unit:"bytes" usage:"the most bytes that the records of one produced batch may decompress to"`
	AutoCreateTopics     bool          `flag:"kafka-auto-create-topics" default:"true" usage:"create a topic when a client that allows it asks for its metadata (Kafka: auto.create.topics.enable)"`
	DefaultPartitions    int           `flag:"kafka-default-partitions" default:"1" usage:"partitions of a topic that is created without saying how many (Kafka: num.partitions)"`
	StreamWait           time.Duration `flag:"kafka-stream-wait" default:"2s" usage:"how long one request waits for all the partitions in it that are being opened here"`
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
	positive("kafka-max-request-bytes", int64(o.MaxRequestBytes))
	positive("kafka-max-other-request-bytes", int64(o.MaxOtherRequestBytes))
	positive("kafka-max-connections", int64(o.MaxConnections))
	positive("kafka-inflight-requests", int64(o.InflightRequests))
	positive("kafka-inflight-bytes", int64(o.InflightBytes))
	positive("kafka-idle-timeout", int64(o.IdleTimeout))
	positive("kafka-read-timeout", int64(o.ReadTimeout))
	positive("kafka-write-timeout", int64(o.WriteTimeout))
	positive("kafka-max-fetch-bytes", int64(o.MaxFetchBytes))
	positive("kafka-max-decompressed-bytes", int64(o.MaxDecompressedBytes))
	positive("kafka-default-partitions", int64(o.DefaultPartitions))
	positive("kafka-stream-wait", int64(o.StreamWait))
	return errors.Join(errs...)
}
