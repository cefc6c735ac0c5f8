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
			_, err := fmt.Fprintln(c.OutOrStdout(), versionLine(build))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func versionLine(build ops.Build) string {
	return fmt.Sprintf("varve %s commit %s %s", build.Version, build.Commit, build.Go)
}
