package nodes

import (
	"math"
	"strconv"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/engine"
)

// tableSettings tells the engine what it obeys of a table's options, as the view has them: a change takes effect when the view has it.
type tableSettings struct{ view *layer.View }

// TableOptions gives settings that remove nothing for a table that the view does not have.
func (t tableSettings) TableOptions(table int64) engine.TableOptions {
	row, ok := t.view.TableByID(table)
	if !ok {
		return engine.TableOptions{Retention: -1, RetentionBytes: -1}
	}
	settings := engine.TableOptions{
		Retention:      -1,
		RetentionBytes: wholeNumber(row.Options, OptionRetentionBytes, -1),
		LogAppendTime:  row.Options[OptionTimestampType] == "LogAppendTime",
	}
	if ms := wholeNumber(row.Options, OptionRetentionMs, defaultRetention.Milliseconds()); ms >= 0 && ms <= maxMilliseconds {
		settings.Retention = time.Duration(ms) * time.Millisecond
	}
	return settings
}

const (
	defaultRetention = 7 * 24 * time.Hour
	// maxMilliseconds is what a time.Duration can hold; a longer retention is for ever.
	maxMilliseconds   = math.MaxInt64 / int64(time.Millisecond)
	defaultMaxMessage = 1<<20 + 12 // Kafka's
)

// MaxMessage is the largest record batch that a table accepts, bytes.
func MaxMessage(row layer.TableRow) int {
	return int(wholeNumber(row.Options, OptionMaxMessageBytes, defaultMaxMessage))
}

// wholeNumber is an option that was validated when it was set; one that does not parse, written by another version, counts as the default.
func wholeNumber(options map[string]string, name string, otherwise int64) int64 {
	text, ok := options[name]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}
