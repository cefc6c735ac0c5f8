package kafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes"
)

// brokerConfigs lists the settings of this node under Kafka's names, as far as there are any. They are set when the process starts.
func (s *Server) brokerConfigs() []config {
	o, d := s.options, DefaultOptions()
	number := func(name string, value, fallback int64, kind kmsg.ConfigType, doc string) config {
		return config{name: name, value: strconv.FormatInt(value, 10), fallback: strconv.FormatInt(fallback, 10), kind: kind, doc: doc}
	}
	self := s.broker.Self()
	configs := []config{
		{name: "advertised.listeners", value: "PLAINTEXT://" + self.Kafka, kind: kmsg.ConfigTypeString, doc: "The address that clients are told."},
		{name: "auto.create.topics.enable", value: strconv.FormatBool(o.AutoCreateTopics), fallback: strconv.FormatBool(d.AutoCreateTopics), kind: kmsg.ConfigTypeBoolean,
			doc: "Whether a topic is created when a client asks for its metadata."},
		{name: "broker.rack", value: self.Rack, kind: kmsg.ConfigTypeString, doc: "The node's rack."},
		number("connections.max.idle.ms", o.IdleTimeout.Milliseconds(), d.IdleTimeout.Milliseconds(), kmsg.ConfigTypeLong, "A connection without requests for this long is closed."),
		number("default.replication.factor", replicas, replicas, kmsg.ConfigTypeInt, "Partitions have one replica, their leader; copies are a matter of the object store."),
		number("fetch.max.bytes", int64(o.MaxFetchBytes), int64(d.MaxFetchBytes), kmsg.ConfigTypeInt, "The most record bytes in one Fetch response."),
		number("max.connections", int64(o.MaxConnections), int64(d.MaxConnections), kmsg.ConfigTypeInt, "Connections held at the same time."),
		number("message.max.bytes", int64(s.defaultMaxMessageBytes), int64(s.defaultMaxMessageBytes), kmsg.ConfigTypeInt, "The largest record batch, where a topic does not say otherwise."),
		{name: "node.id", value: strconv.FormatInt(self.ID, 10), kind: kmsg.ConfigTypeInt, doc: "The node's id."},
		number("num.partitions", int64(o.DefaultPartitions), int64(d.DefaultPartitions), kmsg.ConfigTypeInt, "Partitions of a topic that is created without saying how many."),
		number("socket.request.max.bytes", int64(o.MaxRequestBytes), int64(d.MaxRequestBytes), kmsg.ConfigTypeInt, "The largest request."),
	}
	for _, name := range []string{nodes.OptionRetentionMs, nodes.OptionRetentionBytes} {
		option, _ := nodes.TableOptionByName(name)
		configs = append(configs, config{name: "log." + name, value: option.Default, fallback: option.Default, kind: configType(option.Type), doc: option.Doc})
	}
	for i := range configs {
		configs[i].readOnly = true
		configs[i].source = kmsg.ConfigSourceStaticBrokerConfig
		if configs[i].value == configs[i].fallback {
			configs[i].source = kmsg.ConfigSourceDefaultConfig
		}
	}
	return configs
}
