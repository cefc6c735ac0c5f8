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
		Version:       versionLine(build),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newServe(build), newVersion(build), newStream(), newTopic(), newCluster(), newInspect(), newBench(), newDev(), newDemo())
	helpUnlessKnown(root)
	return root
}

// helpUnlessKnown makes commands that only have commands below them show their help, and refuse a command that they do not have.
func helpUnlessKnown(c *cobra.Command) {
	for _, below := range c.Commands() {
		helpUnlessKnown(below)
	}
	if c.Runnable() {
		return
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.Args = func(c *cobra.Command, given []string) error {
		if len(given) == 0 {
			return nil
		}
		text := fmt.Sprintf("there is no command %q", c.CommandPath()+" "+given[0])
		if c.SuggestionsMinimumDistance <= 0 {
			c.SuggestionsMinimumDistance = 2
		}
		if near := c.SuggestionsFor(given[0]); len(near) > 0 {
			text += "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return &usageError{errors.New(text)}
	}
}

// args makes a check of positional arguments a mistake of usage, and says what was wanted.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if err := check(c, given); err != nil {
			return &usageError{fmt.Errorf("%w; usage: %s", err, c.UseLine())}
		}
		return nil
	}
}
