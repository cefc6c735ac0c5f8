package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicTimeout bounds a command about topics: without it a client waits for a node that is not there.
const topicTimeout = 30 * time.Second

func newTopic() *cobra.Command {
	e := &endpoints{}
	c := &cobra.Command{
		Use:               "topic",
		Short:             "Create, list, describe and delete topics over Kafka",
		PersistentPreRunE: func(*cobra.Command, []string) error { e.resolve(); return nil },
	}
	e.bind(c, kafkaListener)
	c.AddCommand(topicCreate(e), topicList(e), topicDescribe(e), topicDelete(e))
	return c
}

// withAdmin runs do with a Kafka admin client.
func (e *endpoints) withAdmin(ctx context.Context, do func(context.Context, *kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(e.kafka), kgo.RetryTimeout(topicTimeout), kgo.RequestRetries(3))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	return unreached(kafkaListener, e.kafka, do(ctx, kadm.NewClient(client)))
}

func topicCreate(e *endpoints) *cobra.Command {
	var partitions int32
	var configs []string
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a topic", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			options := map[string]*string{}
			for _, config := range configs {
				name, value, ok := strings.Cut(config, "=")
				if !ok {
					return &usageError{fmt.Errorf("--set %q: want name=value", config)}
				}
				options[name] = &value
			}
			return e.withAdmin(c.Context(), func(ctx context.Context, a *kadm.Client) error {
				answer, err := a.CreateTopic(ctx, partitions, -1, options, given[0])
				if err != nil {
					return withMessage(err, answer.ErrMessage)
				}
				fmt.Fprintf(c.OutOrStdout(), "created %s with %d partitions\n", given[0], partitions)
				return nil
			})
		},
	}
	c.Flags().Int32Var(&partitions, "partitions", 1, "number of partitions")
	c.Flags().StringArrayVar(&configs, "set", nil, "topic configuration, such as retention.ms=3600000; may be repeated")
	return c
}

// withMessage adds what the broker says of an error.
func withMessage(err error, message string) error {
	if err == nil || message == "" {
		return err
	}
	return fmt.Errorf("%s: %w", message, err)
}

func topicList(e *endpoints) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List topics", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return e.withAdmin(c.Context(), func(ctx context.Context, a *kadm.Client) error {
				topics, err := a.ListTopics(ctx)
				if err != nil {
					return err
				}
				for _, name := range topics.Names() {
					fmt.Fprintf(c.OutOrStdout(), "%s\t%d\n", name, len(topics[name].Partitions))
				}
				return nil
			})
		},
	}
}

func topicDescribe(e *endpoints) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "describe NAME", Short: "Show partitions, offsets and configuration of a topic", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			return e.withAdmin(c.Context(), func(ctx context.Context, a *kadm.Client) error {
				return describe(ctx, c.OutOrStdout(), a, given[0], all)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "the whole configuration, not only what was set")
	return c
}

func describe(ctx context.Context, out io.Writer, a *kadm.Client, name string, all bool) error {
	topics, err := a.ListTopics(ctx, name)
	if err != nil {
		return err
	}
	topic := topics[name]
	if topic.Err != nil {
		return fmt.Errorf("topic %s: %w", name, topic.Err)
	}
	starts, startErr := a.ListStartOffsets(ctx, name)
	ends, endErr := a.ListEndOffsets(ctx, name)
	configs, configErr := a.DescribeTopicConfigs(ctx, name)
	if err := errors.Join(startErr, endErr, configErr); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\tid %s\n", name, base64.RawURLEncoding.EncodeToString(topic.ID[:])) // as Kafka's tools write it
	for _, p := range topic.Partitions.Sorted() {
		start, _ := starts.Lookup(name, p.Partition)
		end, _ := ends.Lookup(name, p.Partition)
		fmt.Fprintf(out, "partition %d\tleader %d\tleader epoch %d\tstart %d\tend %d\n", p.Partition, p.Leader, p.LeaderEpoch, start.Offset, end.Offset)
	}
	for _, resource := range configs {
		slices.SortFunc(resource.Configs, func(a, b kadm.Config) int { return strings.Compare(a.Key, b.Key) })
		for _, config := range resource.Configs {
			if all || config.Source == kmsg.ConfigSourceDynamicTopicConfig {
				fmt.Fprintf(out, "%s=%s\t%s\n", config.Key, config.MaybeValue(), config.Source)
			}
		}
	}
	return nil
}

func topicDelete(e *endpoints) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME...", Short: "Delete topics and all their data", Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			return e.withAdmin(c.Context(), func(ctx context.Context, a *kadm.Client) error {
				answers, err := a.DeleteTopics(ctx, given...)
				if err != nil {
					return err
				}
				var failed []error
				for _, answer := range answers.Sorted() {
					if answer.Err != nil {
						failed = append(failed, fmt.Errorf("topic %s: %w", answer.Topic, withMessage(answer.Err, answer.ErrMessage)))
						continue
					}
					fmt.Fprintf(c.OutOrStdout(), "deleted %s\n", answer.Topic)
				}
				return errors.Join(failed...)
			})
		},
	}
}
