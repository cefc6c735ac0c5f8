package kafka

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
)

// config is one setting, as DescribeConfigs shows it.
type config struct {
	name, value, fallback string
	doc                   string
	kind                  kmsg.ConfigType
	source                kmsg.ConfigSource
	readOnly              bool
}

// httpOptions begin the names of options that mean something to HTTP streams only.
const httpOptions = "http."

// topicConfigs lists the settings of a topic, by name: the table's options.
func topicConfigs(row layer.TableRow) []config {
	var configs []config
	for _, o := range nodes.TableOptions() {
		value, set := row.Options[o.Name]
		if !set && strings.HasPrefix(o.Name, httpOptions) {
			continue
		}
		c := config{name: o.Name, value: value, fallback: o.Default, doc: o.Doc, kind: configType(o.Type), source: kmsg.ConfigSourceDynamicTopicConfig}
		if !set {
			c.value, c.source = o.Default, kmsg.ConfigSourceDefaultConfig
		}
		configs = append(configs, c)
	}
	return configs
}

func configType(t nodes.OptionType) kmsg.ConfigType {
	switch t {
	case nodes.TypeBoolean:
		return kmsg.ConfigTypeBoolean
	case nodes.TypeInt:
		return kmsg.ConfigTypeInt
	case nodes.TypeLong:
		return kmsg.ConfigTypeLong
	case nodes.TypeDouble:
		return kmsg.ConfigTypeDouble
	case nodes.TypeList:
		return kmsg.ConfigTypeList
	}
	return kmsg.ConfigTypeString
}
