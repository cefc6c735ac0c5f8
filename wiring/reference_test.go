package wiring

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/http/streams"
	"github.com/varvedb/varve/kafka"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/ops"
	"github.com/varvedb/varve/ops/settings"
)

// update makes the references anew instead of comparing them: make generate.
var update = flag.Bool("update", false, "write the tables of ops/README.md")

const operatorsGuide = "../ops/README.md"

// TestReference compares the tables of settings and metrics in ops/README.md with the program.
func TestReference(t *testing.T) {
	text, err := os.ReadFile(operatorsGuide)
	require.NoError(t, err)
	guide := string(text)
	for name, table := range map[string]string{"settings": settingsTable(t), "metrics": metricsTable(t)} {
		begin, end := "<!-- "+name+": made by make generate -->\n", "<!-- end of "+name+" -->\n"
		before, rest, found := strings.Cut(guide, begin)
		require.True(t, found, "%s has no line %q", operatorsGuide, begin)
		is, after, found := strings.Cut(rest, end)
		require.True(t, found, "%s has no line %q", operatorsGuide, end)
		if !*update {
			require.Equal(t, table, is, "%s is not current; run: make generate", operatorsGuide)
		}
		guide = before + begin + table + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(operatorsGuide, []byte(guide), 0o644))
	}
}

// settingsTable has a row for each flag of serve, by the part of the program that it belongs to.
func settingsTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	config := reflect.ValueOf(&Config{}).Elem()
	for _, part := range []struct {
		title   string
		options any
	}{
		{"Process", config.FieldByName("Process").Addr().Interface()},
		{"Node", &nodes.Options{}},
		{"Kafka", &kafka.Options{}},
		{"HTTP", &streams.Options{}},
		{"FoundationDB", config.FieldByName("FDB").Addr().Interface()},
		{"Log", &ops.LogOptions{}},
	} {
		fmt.Fprintf(&b, "\n**%s**\n\n| flag | environment | default | |\n| --- | --- | --- | --- |\n", part.title)
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.SortFlags = false
		require.NoError(t, settings.Bind(flags, part.options))
		flags.VisitAll(func(f *pflag.Flag) {
			shown := f.DefValue
			if shown != "" {
				shown = "`" + shown + "`"
			}
			fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", f.Name, settings.Env(f.Name), shown, strings.ReplaceAll(f.Usage, "|", `\|`))
		})
	}
	return b.String() + "\n"
}

// TestReferenceIsWhole: the parts of the table are all of the configuration.
func TestReferenceIsWhole(t *testing.T) {
	var config Config
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	require.NoError(t, settings.Bind(flags, &config))
	count := 0
	flags.VisitAll(func(*pflag.Flag) { count++ })
	require.Equal(t, count, strings.Count(settingsTable(t), "| `--"))
}

// metric is one that a process has.
type metric struct{ name, kind, labels, help string }

// recorder is a registerer that remembers what it is given.
type recorder struct {
	t       *testing.T
	metrics []metric
}

var descriptor = regexp.MustCompile(`^Desc\{fqName: "(.*?)", help: "(.*?)", (?:unit: ".*?", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func (r *recorder) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc, 1000)
	c.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		parts := descriptor.FindStringSubmatch(d.String())
		require.NotNil(r.t, parts, d.String())
		r.metrics = append(r.metrics, metric{name: parts[1], kind: kindOf(r.t, c), labels: strings.ReplaceAll(parts[4], ",", ", "), help: parts[2]})
	}
	return nil
}

func (r *recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = r.Register(c)
	}
}

func (r *recorder) Unregister(prometheus.Collector) bool { return false }

func kindOf(t *testing.T, c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	if _, ok := c.(prometheus.Histogram); ok {
		return "histogram"
	}
	if _, ok := c.(prometheus.Gauge); ok {
		return "gauge"
	}
	_, ok := c.(prometheus.Counter)
	require.True(t, ok, "a collector of type %T", c)
	return "counter"
}

// allMetrics are those of every component, by name.
func allMetrics(t *testing.T) []metric {
	t.Helper()
	r := &recorder{t: t}
	nodes.NewMetrics(r)
	kafka.NewMetrics(r)
	streams.NewMetrics(r)
	ops.NewObjectMetrics(r)
	families, err := ops.NewRegistry(ops.NewBuild("", "")).Gather()
	require.NoError(t, err)
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "varve_") {
			r.metrics = append(r.metrics, metric{name: f.GetName(), kind: "gauge", labels: "commit, go, version", help: f.GetHelp()})
		}
	}
	slices.SortFunc(r.metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	require.Greater(t, len(r.metrics), 40)
	return r.metrics
}

func metricsTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| metric | type | labels | |\n| --- | --- | --- | --- |\n")
	for _, m := range allMetrics(t) {
		require.NotEmpty(t, m.help, m.name)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, m.help)
	}
	return b.String() + "\n"
}

var metricName = regexp.MustCompile(`\bvarve_[a-z0-9_]+`)

// TestPackagingNamesMetricsThatExist reads the dashboard and the alerts.
func TestPackagingNamesMetricsThatExist(t *testing.T) {
	known := map[string]bool{}
	for _, m := range allMetrics(t) {
		known[m.name] = true
		if m.kind == "histogram" {
			known[m.name+"_bucket"], known[m.name+"_sum"], known[m.name+"_count"] = true, true, true
		}
	}
	for _, file := range []string{"../ops/packaging/dashboard.json", "../ops/packaging/alerts.yaml", operatorsGuide} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		names := metricName.FindAllString(string(text), -1)
		require.NotEmpty(t, names, file)
		for _, name := range names {
			require.True(t, known[name], "%s uses the metric %s, which does not exist", file, name)
		}
	}
}

// TestAlertsNameRunbooks: every alert names a runbook of the operators' guide.
func TestAlertsNameRunbooks(t *testing.T) {
	guide, err := os.ReadFile(operatorsGuide)
	require.NoError(t, err)
	alerts, err := os.ReadFile("../ops/packaging/alerts.yaml")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)^ +runbook: (.+)$`).FindAllStringSubmatch(string(alerts), -1)
	require.Len(t, named, strings.Count(string(alerts), "- alert:"))
	for _, name := range named {
		require.Contains(t, string(guide), "\n**"+name[1]+"**", "there is no runbook of this name")
	}
	dashboard, err := os.ReadFile("../ops/packaging/dashboard.json")
	require.NoError(t, err)
	require.True(t, json.Valid(dashboard))
}
