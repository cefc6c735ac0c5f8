package main

import (
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/varvedb/varve/ops"
	"github.com/varvedb/varve/ops/settings"
	"github.com/varvedb/varve/wiring"
)

func newServe(build ops.Build) *cobra.Command {
	config := wiring.DefaultConfig()
	var file string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node. Without --cluster-file the metadata lies in an embedded engine in the data directory, and the node is the whole cluster.

Every flag can also be set by an environment variable (--kafka-listen is VARVE_KAFKA_LISTEN) and by a key of the file that --config
names (kafka-listen: 0.0.0.0:9092). Flags win over the environment, and that over the file.

Exit codes: 0 stopped cleanly, 1 failed, 2 wrong usage, 3 fenced (start it again: it rejoins with a new epoch).`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				file = os.Getenv(settings.Env("config"))
			}
			if err := settings.Load(c.Flags(), file); err != nil {
				return &usageError{err}
			}
			if err := config.Validate(); err != nil {
				return &usageError{err}
			}
			collectSooner()
			if err := warnOfUnknown(c, config.Log); err != nil {
				return err
			}
			return wiring.Serve(c.Context(), config, build, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().SortFlags = false
	if err := settings.Bind(c.Flags(), &config); err != nil {
		panic(err) // a tag that does not parse: a mistake in this program, shown by every run
	}
	c.Flags().StringVar(&file, "config", "", "configuration file (YAML, TOML or JSON by its ending)")
	return c
}

// warnOfUnknown logs environment variables that look like settings and are none.
func warnOfUnknown(c *cobra.Command, o ops.LogOptions) error {
	unknown := settings.Unknown(c.Flags(), os.Environ(), "config", string(kafkaListener), string(httpListener), string(adminListener))
	if len(unknown) == 0 {
		return nil
	}
	logger, err := ops.NewLogger(o, c.ErrOrStderr())
	if err != nil {
		return err
	}
	logger.Warn("environment variables that are no settings: misspelt?", "variables", unknown)
	return nil
}

// collectSooner makes the garbage collector keep less spare memory than Go's default, unless GOGC says otherwise: what a node holds is large
// buffers that are cheap to collect.
func collectSooner() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40)
	}
}
