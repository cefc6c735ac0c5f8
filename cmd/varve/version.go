package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/varvedb/varve/ops"
)

func newVersion(build ops.Build) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Show version and commit",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(build)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "varve %s commit %s %s\n", build.Version, build.Commit, build.Go)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}
