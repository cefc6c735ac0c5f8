package wal

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
)

// TestReadmeIsTrue: the fixture and the metrics that the page shows are those of the code.
func TestReadmeIsTrue(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)<!-- fixture: ([a-z.]+) -->\n```\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, found)
	for _, f := range found {
		fixture, err := os.ReadFile(filepath.Join("segment", "testdata", f[1]))
		require.NoError(t, err)
		require.Equal(t, string(fixture), f[2], f[1])
	}

	registry := prometheus.NewRegistry()
	h := newHarness(t, layer.FenceBoth, func(o *Options) { o.Metrics = NewMetrics(registry) })
	h.append(100, 11)
	require.NoError(t, h.close())
	h.log.o.Metrics.retries.WithLabelValues("put").Inc()
	h.log.o.Metrics.recovered.WithLabelValues("inline").Inc()
	families, err := registry.Gather()
	require.NoError(t, err)
	listed := regexp.MustCompile("`(varve_wal_[a-z_]+)`").FindAllStringSubmatch(string(page), -1)
	inPage := map[string]bool{}
	for _, l := range listed {
		inPage[l[1]] = true
	}
	for _, f := range families {
		require.True(t, inPage[f.GetName()], "%s is not in README.md", f.GetName())
		delete(inPage, f.GetName())
	}
	require.Empty(t, inPage, "README.md has metrics that do not exist")
	require.True(t, strings.Contains(string(page), "64 KiB") && Options{}.withDefaults().InlineMax == 64<<10)
}
