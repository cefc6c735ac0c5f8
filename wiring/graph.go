package wiring

import (
	"context"
	"io"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/varvedb/varve/http/admin"
	"github.com/varvedb/varve/http/streams"
	"github.com/varvedb/varve/kafka"
	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/ops"
	"github.com/varvedb/varve/wal/objects"
)

// graph is every component of a process. What starts and stops when is in lifecycle.go.
func graph(ctx context.Context, c Config, build ops.Build, logs io.Writer) fx.Option {
	return fx.Options(
		fx.Supply(c, build),
		fx.Provide(
			func() context.Context { return ctx },
			func() (*slog.Logger, error) { return ops.NewLogger(c.Log, logs) },
		),
		telemetry,
		stores,
		serving,
	)
}

var telemetry = fx.Module("telemetry", fx.Provide(
	ops.NewRegistry,
	func(r *prometheus.Registry) prometheus.Registerer { return r },
	func(r *prometheus.Registry) prometheus.Gatherer { return r },
	ops.NewObjectMetrics,
	nodes.NewMetrics,
	kafka.NewMetrics,
	streams.NewMetrics,
))

var stores = fx.Module("stores", fx.Provide(
	newDatabase,
	newObjectStore,
	NewLayer,
))

var serving = fx.Module("serving", fx.Provide(
	newListeners,
	newNode,
	func(c Config, n *nodes.Node, logger *slog.Logger, m *kafka.Metrics) (*kafka.Server, error) {
		return kafka.NewServer(c.Kafka, n, logger, m)
	},
	func(ctx context.Context, c Config, n *nodes.Node, logger *slog.Logger, m *streams.Metrics) (*streams.Server, error) {
		return streams.New(ctx, c.HTTP, n, logger, m)
	},
	func(ctx context.Context, n *nodes.Node, store *layer.Store, g prometheus.Gatherer, build ops.Build, logger *slog.Logger) *admin.Server {
		return admin.New(ctx, n, store, g, build, logger)
	},
))

func newNode(c Config, l *listeners, store *layer.Store, objectStore objects.Store, build ops.Build, logger *slog.Logger, m *nodes.Metrics) (*nodes.Node, error) {
	options := c.Node
	options.Version = build.Version
	for _, a := range []struct {
		to       *string
		set      string
		listener net.Listener
	}{
		{&options.AdvertisedKafka, c.Process.KafkaAdvertise, l.kafka},
		{&options.AdvertisedHTTP, c.Process.HTTPAdvertise, l.http},
		{&options.AdvertisedAdmin, c.Process.AdminAdvertise, l.admin},
	} {
		*a.to = advertised(a.set, a.listener)
	}
	return nodes.New(options, store, objectStore, logger, m)
}
