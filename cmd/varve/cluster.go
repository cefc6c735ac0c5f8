package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/varvedb/varve/http/admin"
	"github.com/varvedb/varve/nodes"
)

func newCluster() *cobra.Command {
	e := &endpoints{}
	c := &cobra.Command{
		Use:               "cluster",
		Short:             "Show and change which nodes there are and what they lead",
		PersistentPreRunE: func(*cobra.Command, []string) error { e.resolve(); return nil },
	}
	e.bind(c, adminListener)
	c.AddCommand(clusterStatus(e), clusterNodes(e), clusterRebalance(e), clusterDrain(e), clusterUndrain(e), clusterSetSlots(e), clusterFence(e))
	return c
}

// do asks the admin API for an action. into may be nil.
func (e *endpoints) do(ctx context.Context, path string, asked, into any) error {
	body, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	answer, err := call(ctx, http.MethodPost, e.adminURL(path), http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if into == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(answer.Body, maxReply)).Decode(into)
}

func clusterStatus(e *endpoints) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "status", Short: "Show the cluster as one node sees it", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			var status nodes.ClusterStatus
			if err := getJSON(c.Context(), e.adminURL("/admin/cluster"), &status); err != nil {
				return err
			}
			out := c.OutOrStdout()
			if asJSON {
				return printJSON(out, status)
			}
			holder := "none"
			if status.Controller != 0 {
				holder = fmt.Sprintf("node %d", status.Controller)
			}
			fmt.Fprintf(out, "cluster %s, seen by node %d@%d (%s)\n", status.Cluster, status.Node, status.Epoch, status.State)
			if status.Reason != "" {
				fmt.Fprintf(out, "not ready: %s\n", status.Reason)
			}
			fmt.Fprintf(out, "lease holder: %s, lease epoch %d\ntables: %d; streams open here: %d\n", holder, status.LeaseEpoch, status.Tables, status.Serving)
			return printNodes(out, status.Nodes)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func clusterNodes(e *endpoints) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "nodes", Short: "List every node that ever registered", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			var all []nodes.NodeStatus
			if err := getJSON(c.Context(), e.adminURL("/admin/nodes"), &all); err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), all)
			}
			return printNodes(c.OutOrStdout(), all)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func printNodes(out io.Writer, all []nodes.NodeStatus) error {
	t := tabwriter.NewWriter(out, 2, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tEPOCH\tSTATE\tSTREAMS\tSLOTS\tHEARTBEATS\tKAFKA\tHTTP\tADMIN")
	for _, n := range all {
		state := "fenced"
		if n.Live {
			state = "live"
		}
		if n.Controller {
			state += ", holds the lease"
		}
		slots := strconv.Itoa(n.Slots)
		if n.OwnSlots != nil {
			slots += fmt.Sprintf(" (own: %d)", *n.OwnSlots)
			if n.Slots == 0 {
				state += ", drained"
			}
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%d\t%s\t%d\t%s\t%s\t%s\n", n.ID, n.Epoch, state, n.Streams, slots, n.Heartbeats, n.Kafka, n.HTTP, n.Admin)
	}
	return t.Flush()
}

func clusterRebalance(e *endpoints) *cobra.Command {
	return &cobra.Command{
		Use: "rebalance", Short: "Move streams until every node is within 10% of the mean load per slot", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			var moves admin.Moves
			if err := e.do(c.Context(), "/admin/rebalance", struct{}{}, &moves); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "moves begun: %d; varve stream transfers shows them\n", moves.Moves)
			return nil
		},
	}
}

// whole reads an argument that is a whole number from least up.
func whole(what, text string, least int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least {
		return 0, &usageError{fmt.Errorf("%s %q: want a whole number from %d", what, text, least)}
	}
	return n, nil
}

// nodeCommand is a command about one node, which its first argument names.
func nodeCommand(use, short string, arguments int, run func(c *cobra.Command, node int64, rest []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args(cobra.ExactArgs(arguments)),
		RunE: func(c *cobra.Command, given []string) error {
			node, err := whole("node", given[0], 1)
			if err != nil {
				return err
			}
			return run(c, node, given[1:])
		},
	}
}

func clusterDrain(e *endpoints) *cobra.Command {
	return nodeCommand("drain NODE", "Move every stream of a node to the others, and place no more on it until undrain", 1, func(c *cobra.Command, node int64, _ []string) error {
		var moves admin.Moves
		if err := e.do(c.Context(), "/admin/drain", admin.NodeAction{Node: node}, &moves); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "node %d gets no streams until varve cluster undrain %d; moves begun: %d, varve stream transfers shows them\n", node, node, moves.Moves)
		return nil
	})
}

func clusterUndrain(e *endpoints) *cobra.Command {
	return nodeCommand("undrain NODE", "Give a node the slots back that it was started with, after drain or set-slots", 1, func(c *cobra.Command, node int64, _ []string) error {
		return e.undrain(c, node)
	})
}

func (e *endpoints) undrain(c *cobra.Command, node int64) error {
	if err := e.do(c.Context(), "/admin/undrain", admin.NodeAction{Node: node}, nil); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "node %d has its own slots; varve cluster rebalance gives it streams\n", node)
	return nil
}

// defaultSlots is the argument of set-slots that does what undrain does.
const defaultSlots = "default"

func clusterSetSlots(e *endpoints) *cobra.Command {
	const short = "Change a node's weight in placement, whatever --slots it is started with, until default is given"
	return nodeCommand("set-slots NODE SLOTS|default", short, 2, func(c *cobra.Command, node int64, rest []string) error {
		if rest[0] == defaultSlots {
			return e.undrain(c, node)
		}
		n, err := whole("slots", rest[0], 0)
		if err != nil {
			return err
		}
		slots := int(n)
		if err := e.do(c.Context(), "/admin/slots", admin.NodeAction{Node: node, Slots: &slots}, nil); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "node %d has %d slots until varve cluster set-slots %d default\n", node, slots, node)
		return nil
	})
}

func clusterFence(e *endpoints) *cobra.Command {
	return nodeCommand("fence NODE", "End the current epoch of a node: it stops serving and exits, its streams are taken over", 1, func(c *cobra.Command, node int64, _ []string) error {
		if err := e.do(c.Context(), "/admin/fence", admin.NodeAction{Node: node}, nil); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "node %d is fenced\n", node)
		return nil
	})
}
