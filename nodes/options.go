package nodes

import (
	"fmt"
	"math"
	"mime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// OptionType is the type of a table option's value, in the words of Kafka's DescribeConfigs.
type OptionType string

const (
	TypeBoolean OptionType = "boolean"
	TypeString  OptionType = "string"
	TypeInt     OptionType = "int"
	TypeLong    OptionType = "long"
	TypeDouble  OptionType = "double"
	TypeList    OptionType = "list"
)

// OptionEffect says what setting an option does here.
type OptionEffect string

const (
	// EffectApplied: the option does what its doc says.
	EffectApplied OptionEffect = "applied"
	// EffectNone: Kafka's tools set it, and it has nothing to act on here; it is kept and shown.
	EffectNone OptionEffect = "none"
	// EffectFixed: only the default is accepted, since any other value would promise what is not done.
	EffectFixed OptionEffect = "fixed"
)

// TableOption describes one option of tables. Values are strings, as Kafka has them.
type TableOption struct {
	Name    string
	Type    OptionType
	Default string // "" with no default
	Effect  OptionEffect
	Doc     string
	// check refuses a value by saying why; "" accepts it.
	check func(value string) string
}

// Names of the options that Varve acts on.
const (
	OptionRetentionMs     = "retention.ms"
	OptionRetentionBytes  = "retention.bytes"
	OptionMaxMessageBytes = "max.message.bytes"
	OptionCleanupPolicy   = "cleanup.policy"
	OptionTimestampType   = "message.timestamp.type"
	OptionCompressionType = "compression.type"
	OptionHTTPContentType = "http.content.type"
	OptionHTTPTTLSeconds  = "http.ttl.seconds"
	OptionHTTPExpiresAt   = "http.expires.at"
)

// MaxMessageBytes is the most that max.message.bytes can be: a batch is never split over blocks of an object.
const MaxMessageBytes = 32 << 20

// TableOptions lists every option that a table can have, by name.
func TableOptions() []TableOption {
	options := append(appliedOptions(), inertOptions()...)
	sort.Slice(options, func(i, j int) bool { return options[i].Name < options[j].Name })
	return options
}

func appliedOptions() []TableOption {
	return []TableOption{
		{OptionRetentionMs, TypeLong, strconv.FormatInt(defaultRetention.Milliseconds(), 10), EffectApplied,
			"Age in milliseconds at which records are removed, by the largest timestamp of their batch or data object. -1 keeps them for ever.", integer(-1, math.MaxInt64)},
		{OptionRetentionBytes, TypeLong, "-1", EffectApplied,
			"Size in bytes that a bucket may have before its oldest data objects are removed. -1 sets no bound.", integer(-1, math.MaxInt64)},
		{OptionMaxMessageBytes, TypeInt, strconv.Itoa(defaultMaxMessage), EffectApplied,
			"The largest record batch accepted, in bytes, as it was sent.", integer(0, MaxMessageBytes)},
		{OptionCleanupPolicy, TypeList, "delete", EffectApplied,
			"How old records go. Only delete: by age and size. Compaction by key is not offered for log tables.", oneOf("delete")},
		{OptionTimestampType, TypeString, "CreateTime", EffectApplied,
			"CreateTime keeps the producer's timestamps, LogAppendTime puts the leader's clock over them.", oneOf("CreateTime", "LogAppendTime")},
		{OptionHTTPContentType, TypeString, "", EffectApplied,
			"Media type of an HTTP stream, set when it is created.", mediaType},
		{OptionHTTPTTLSeconds, TypeLong, "", EffectApplied,
			"Seconds without a read or an append after which an HTTP stream is deleted.", integer(0, math.MaxInt64/int64(time.Second))},
		{OptionHTTPExpiresAt, TypeString, "", EffectApplied,
			"Time at which an HTTP stream is deleted, RFC 3339.", timestamp},
	}
}

func inertOptions() []TableOption {
	none := func(name string, t OptionType, def string, check func(string) string) TableOption {
		return TableOption{name, t, def, EffectNone, "Accepted for Kafka's tools; it has nothing to act on, since records lie in an object store.", check}
	}
	fixed := func(name string, t OptionType, def, why string) TableOption {
		return TableOption{name, t, def, EffectFixed, why, oneOf(def)}
	}
	long, bytes, ratio, boolean := integer(0, math.MaxInt64), integer(1, math.MaxInt32), fraction, oneOf("true", "false")
	return []TableOption{
		fixed(OptionCompressionType, TypeString, "producer", "Batches are kept as the producer compressed them."),
		none("min.insync.replicas", TypeInt, "1", integer(1, math.MaxInt32)),
		none("segment.bytes", TypeInt, "1073741824", bytes),
		none("segment.ms", TypeLong, "604800000", integer(1, math.MaxInt64)),
		none("segment.jitter.ms", TypeLong, "0", long),
		none("segment.index.bytes", TypeInt, "10485760", integer(4, math.MaxInt32)),
		none("index.interval.bytes", TypeInt, "4096", integer(0, math.MaxInt32)),
		none("flush.messages", TypeLong, "9223372036854775807", integer(1, math.MaxInt64)),
		none("flush.ms", TypeLong, "9223372036854775807", long),
		none("file.delete.delay.ms", TypeLong, "60000", long),
		none("delete.retention.ms", TypeLong, "86400000", long),
		none("min.compaction.lag.ms", TypeLong, "0", long),
		none("max.compaction.lag.ms", TypeLong, "9223372036854775807", integer(1, math.MaxInt64)),
		none("min.cleanable.dirty.ratio", TypeDouble, "0.5", ratio),
		none("preallocate", TypeBoolean, "false", boolean),
		none("unclean.leader.election.enable", TypeBoolean, "false", boolean),
		none("leader.replication.throttled.replicas", TypeList, "", anything),
		none("follower.replication.throttled.replicas", TypeList, "", anything),
		none("message.downconversion.enable", TypeBoolean, "true", boolean),
		none("message.format.version", TypeString, "3.0-IV1", anything),
		none("local.retention.ms", TypeLong, "-2", integer(-2, math.MaxInt64)),
		none("local.retention.bytes", TypeLong, "-2", integer(-2, math.MaxInt64)),
		fixed("remote.storage.enable", TypeBoolean, "false", "Records lie in an object store whatever this says, and Kafka's tiered storage interface is not offered."),
		fixed("message.timestamp.difference.max.ms", TypeLong, "9223372036854775807", "Timestamps of producers are not bounded."),
		fixed("message.timestamp.before.max.ms", TypeLong, "9223372036854775807", "Timestamps of producers are not bounded."),
		fixed("message.timestamp.after.max.ms", TypeLong, "9223372036854775807", "Timestamps of producers are not bounded."),
	}
}

// TableOptionByName finds one option.
func TableOptionByName(name string) (TableOption, bool) {
	for _, o := range TableOptions() {
		if o.Name == name {
			return o, true
		}
	}
	return TableOption{}, false
}

// ValidateTableOptions refuses unknown options and values with *InvalidOption.
func ValidateTableOptions(options map[string]string) error {
	if len(options) > 0 {
		known := TableOptions()
		for _, name := range slices.Sorted(mapKeys(options)) {
			i := slices.IndexFunc(known, func(o TableOption) bool { return o.Name == name })
			if i < 0 {
				return &InvalidOption{clip(name), clip(options[name]), "there is no such option"}
			}
			if err := known[i].Validate(options[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// maxOptionValue bounds what is stored in a table's row, bytes.
const maxOptionValue = 4096

// Validate refuses a value with *InvalidOption.
func (o TableOption) Validate(value string) error {
	if len(value) > maxOptionValue {
		return &InvalidOption{o.Name, clip(value), fmt.Sprintf("%d bytes, the most is %d", len(value), maxOptionValue)}
	}
	if reason := o.check(value); reason != "" {
		if o.Effect == EffectFixed {
			reason += ". " + o.Doc
		}
		return &InvalidOption{o.Name, clip(value), reason}
	}
	return nil
}

// OptionValue is the value that a table has for an option: what was set, else the default.
func OptionValue(set map[string]string, name string) string {
	if v, ok := set[name]; ok {
		return v
	}
	o, _ := TableOptionByName(name)
	return o.Default
}

// clip keeps values from outside short in messages.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

func integer(least, most int64) func(string) string {
	return func(v string) string {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Sprintf("want a whole number from %d to %d", least, most)
		}
		return ""
	}
}

func oneOf(values ...string) func(string) string {
	return func(v string) string {
		if slices.Contains(values, v) {
			return ""
		}
		return "want " + strings.Join(values, " or ")
	}
}

func fraction(v string) string {
	if f, err := strconv.ParseFloat(v, 64); err != nil || !(f >= 0 && f <= 1) {
		return "want a number from 0 to 1"
	}
	return ""
}

func anything(string) string { return "" }

func mediaType(v string) string {
	if _, _, err := mime.ParseMediaType(v); err != nil {
		return "want a media type such as application/json"
	}
	return ""
}

func timestamp(v string) string {
	if _, err := time.Parse(time.RFC3339, v); err != nil {
		return "want a time such as 2031-05-04T10:00:00Z"
	}
	return ""
}
