package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvedb/varve/ops"
)

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func newRoot(build ops.Build) *cobra.Command {
	root := &cobra.Command{
		Use:           "varve",
		Short:         "Durable streams over Kafka and HTTP, a layer on FoundationDB",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newServe(build), newVersion(build), newStream(), newTopic(), newCluster(), newInspect(), newBench(), newDev(), newDemo())
	return root
}

// args makes a check of positional arguments a mistake of usage.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if err := check(c, given); err != nil {
			return &usageError{err}
		}
		return nil
	}
}
