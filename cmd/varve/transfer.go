package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvedb/varve/http/admin"
	"github.com/varvedb/varve/nodes"
)

// pollEvery is how often a command that waits looks again.
const pollEvery = 100 * time.Millisecond

func streamTransfer(e *endpoints) *cobra.Command {
	var a admin.StreamAction
	var wait bool
	c := &cobra.Command{
		Use: "transfer NAME --to NODE", Short: "Move a stream, or a partition of a topic, to another node", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			if a.To < 1 {
				return &usageError{errors.New("--to: want the id of a node")}
			}
			a.Stream = given[0]
			var begun nodes.TransferStatus
			if err := e.do(c.Context(), "/admin/transfer", a, &begun); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "moving %s/%d from node %d to node %d\n", a.Stream, a.Bucket, begun.From, begun.To)
			if !wait {
				return nil
			}
			return e.awaitTransfer(c, a, begun)
		},
	}
	c.Flags().Int64Var(&a.To, "to", 0, "id of the node to move to")
	c.Flags().IntVar(&a.Bucket, "bucket", 0, "bucket: the partition of a topic")
	c.Flags().BoolVar(&wait, "wait", false, "return when the new leader has opened it")
	return c
}

// awaitTransfer returns when the target serves the bucket, with an error when somebody else leads it and no transfer is pending.
func (e *endpoints) awaitTransfer(c *cobra.Command, a admin.StreamAction, begun nodes.TransferStatus) error {
	start := time.Now()
	for {
		status, err := e.bucket(c.Context(), a.Stream, a.Bucket)
		switch {
		case err != nil:
			return err
		case status.Leader == a.To && status.State == "open" && status.Epoch == status.LeaderEpoch:
			fmt.Fprintf(c.OutOrStdout(), "node %d leads it at epoch %d, after %v\n", a.To, status.Epoch, time.Since(start).Round(time.Millisecond))
			return nil
		case status.Leader != a.To && status.TransferTo != a.To && status.LeaderEpoch != begun.LeaderEpoch:
			return fmt.Errorf("%s/%d was not moved: node %d leads it, and no transfer to node %d is pending", a.Stream, a.Bucket, status.Leader, a.To)
		}
		select {
		case <-c.Context().Done():
			return context.Cause(c.Context())
		case <-time.After(pollEvery):
		}
	}
}

// bucket reads the state of one stream.
func (e *endpoints) bucket(ctx context.Context, name string, bucket int) (nodes.BucketStatus, error) {
	var table struct {
		Streams []nodes.BucketStatus `json:"streams"`
	}
	if err := getJSON(ctx, e.adminURL("/admin/streams/"+url.PathEscape(name)), &table); err != nil {
		return nodes.BucketStatus{}, err
	}
	for _, status := range table.Streams {
		if status.Bucket == bucket {
			return status, nil
		}
	}
	return nodes.BucketStatus{}, fmt.Errorf("%s has no bucket %d", name, bucket)
}

func streamTransfers(e *endpoints) *cobra.Command {
	return &cobra.Command{
		Use: "transfers", Short: "List the moves that are under way", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			var all []nodes.TransferStatus
			if err := getJSON(c.Context(), e.adminURL("/admin/transfers"), &all); err != nil {
				return err
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 2, 8, 2, ' ', 0)
			for _, transfer := range all {
				fmt.Fprintf(t, "%s/%d\tfrom node %d\tto node %d\tsince %s\n", transfer.Table, transfer.Bucket, transfer.From, transfer.To, transfer.At.Format(time.RFC3339))
			}
			return t.Flush()
		},
	}
}

func streamCancelTransfer(e *endpoints) *cobra.Command {
	var a admin.StreamAction
	c := &cobra.Command{
		Use: "cancel-transfer NAME", Short: "Give up a move that is under way", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			a.Stream = given[0]
			if err := e.do(c.Context(), "/admin/transfer/cancel", a, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "the move of %s/%d is cancelled\n", a.Stream, a.Bucket)
			return nil
		},
	}
	c.Flags().IntVar(&a.Bucket, "bucket", 0, "bucket: the partition of a topic")
	return c
}
