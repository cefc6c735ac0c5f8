package settings

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// field is a flag value that writes to a field of a struct.
type field struct {
	kind  string
	text  string
	parse func(string) (any, error)
	to    reflect.Value
}

func (f *field) String() string { return f.text }
func (f *field) Type() string   { return f.kind }

func (f *field) Set(text string) error {
	value, err := f.parse(text)
	if err != nil {
		return err
	}
	f.to.Set(reflect.ValueOf(value).Convert(f.to.Type()))
	f.text = text
	return nil
}

// valueOf makes the flag value of a field: string, bool, integer (also with unit "bytes"), float, duration or list of strings.
func valueOf(to reflect.Value, unit string) (pflag.Value, error) {
	f := &field{to: to}
	switch {
	case to.Type() == reflect.TypeFor[time.Duration]():
		f.kind, f.parse = "duration", parseDuration
	case to.Kind() == reflect.String:
		f.kind, f.parse = "string", func(s string) (any, error) { return s, nil }
	case to.Kind() == reflect.Bool:
		f.kind, f.parse = "bool", parseBool
	case (to.Kind() == reflect.Int || to.Kind() == reflect.Int64 || to.Kind() == reflect.Int32) && unit == "bytes":
		f.kind, f.parse = "bytes", bounded(to.Type().Bits(), ParseBytes)
	case to.Kind() == reflect.Int || to.Kind() == reflect.Int64 || to.Kind() == reflect.Int32:
		f.kind, f.parse = "int", bounded(to.Type().Bits(), parseInt)
	case to.Kind() == reflect.Float64:
		f.kind, f.parse = "float", parseFloat
	case to.Type() == reflect.TypeFor[[]string]():
		f.kind, f.parse = "strings", func(s string) (any, error) { return splitList(s), nil }
	default:
		return nil, fmt.Errorf("no flag can be made of type %s", to.Type())
	}
	return f, nil
}

func parseDuration(text string) (any, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, fmt.Errorf("%q is no duration, such as 500ms, 10s or 1h", text)
	}
	return d, nil
}

func parseBool(text string) (any, error) {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return nil, fmt.Errorf("%q is neither true nor false", text)
	}
	return b, nil
}

func parseFloat(text string) (any, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) {
		return nil, fmt.Errorf("%q is no number", text)
	}
	return f, nil
}

func parseInt(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number", text)
	}
	return n, nil
}

func bounded(bits int, parse func(string) (int64, error)) func(string) (any, error) {
	return func(text string) (any, error) {
		n, err := parse(text)
		if err == nil && bits == 32 && (n > math.MaxInt32 || n < math.MinInt32) {
			err = fmt.Errorf("%s is out of range", text)
		}
		return n, err
	}
}

func splitList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

var byteUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseBytes reads a size such as 1048576, 64KiB, 8MiB or 2GB.
func ParseBytes(text string) (int64, error) {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range byteUnits {
		if cut, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(cut), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/factor || n < math.MinInt64/factor {
		return 0, fmt.Errorf("%q is no size in bytes, such as 1048576, 64KiB or 2GB", text)
	}
	return n * factor, nil
}
