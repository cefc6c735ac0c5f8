package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// One request creates up to so many topics, and up to so many partitions unless one topic has more.
const (
	topicsPerRequest     = 100
	partitionsPerRequest = 10_000
)

// newBenchTopics measures how fast topics are made, which is a matter of the metadata alone.
func newBenchTopics(b *benchmark) *cobra.Command {
	var count int
	var partitions int32
	c := &cobra.Command{
		Use:   "topics",
		Short: "Measure how fast topics are created",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if count < 1 || partitions < 1 {
				return &usageError{errors.New("want at least one topic and one partition")}
			}
			return b.createTopics(c.Context(), c.OutOrStdout(), count, partitions)
		},
	}
	c.Flags().IntVar(&count, "count", 10_000, "topics to create; they are kept")
	c.Flags().Int32Var(&partitions, "partitions-each", 1, "partitions of each topic")
	return c
}

func (b *benchmark) createTopics(ctx context.Context, out io.Writer, count int, partitions int32) error {
	prefix := fmt.Sprintf("bench-%d-", time.Now().UnixNano())
	at := max(1, min(topicsPerRequest, partitionsPerRequest/int(partitions)))
	took := newSamples(count / at)
	start := time.Now()
	for made := 0; made < count; made += at {
		names := make([]string, 0, at)
		for i := made; i < min(count, made+at); i++ {
			names = append(names, fmt.Sprintf("%s%07d", prefix, i))
		}
		sent := time.Now()
		if err := b.createAll(ctx, names, partitions); err != nil {
			return fmt.Errorf("after %d topics: %w", made, err)
		}
		took.add(time.Since(sent))
	}
	total := time.Since(start)
	fmt.Fprintf(out, "topics: %d of %d partitions in %.2f s, %.0f topics/s\n", count, partitions, total.Seconds(), float64(count)/total.Seconds())
	took.report(out, fmt.Sprintf("  %d topics after", at))
	return nil
}

func (b *benchmark) createAll(ctx context.Context, names []string, partitions int32) error {
	return b.withAdmin(ctx, func(ctx context.Context, a *kadm.Client) error {
		answers, err := a.CreateTopics(ctx, partitions, -1, nil, names...)
		if err != nil {
			return err
		}
		for _, answer := range answers {
			if answer.Err != nil {
				return fmt.Errorf("topic %s: %w", answer.Topic, withMessage(answer.Err, answer.ErrMessage))
			}
		}
		return nil
	})
}
