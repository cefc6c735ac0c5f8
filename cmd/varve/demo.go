package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvedb/varve/integration/history"
	"github.com/varvedb/varve/nodes"
)

// What the demonstration does, and for how long.
const (
	demoTopic      = "demo"
	demoWriter     = "demo"
	demoPartitions = 6
	demoEvery      = 5 * time.Millisecond // between two records of a partition
	demoWarmUp     = 4 * time.Second
	demoAfter      = 4 * time.Second
	demoPatience   = 60 * time.Second
)

func newDemo() *cobra.Command {
	var dataDir string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show a failover: three nodes, a producer, and a leader that is killed",
		Long: `Show a failover on this machine. Three nodes are started (varve dev) and an idempotent Kafka producer writes to six partitions. The process
that leads the first of them is killed with SIGKILL; the others find it dead by its heartbeats, take over its write-ahead log and its
streams, and the producer goes on. In the end everything is read and compared with what was acknowledged. Exit code 1 if anything is amiss.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if dataDir == "" {
				if dataDir, err = os.MkdirTemp("", "varve-demo"); err != nil {
					return err
				}
				defer os.RemoveAll(dataDir)
			}
			return runDemo(c.Context(), dataDir, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", "", "directory of the cluster, which must be new; empty for one that is removed afterwards")
	return c
}

func runDemo(ctx context.Context, dataDir string, out io.Writer) (err error) {
	cluster, err := newDevCluster(ctx, devOptions{name: "demo", nodes: 3, dataDir: dataDir, quiet: true, serve: []string{
		"--heartbeat-interval", "1s", "--node-timeout", "3s", "--lease-ttl", "3s", "--detector-interval", "250ms", "--coordinator-tick", "1s",
	}}, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.stop()) }()
	d := &demo{cluster: cluster, began: time.Now()}
	d.say("starting three nodes; heartbeats every second, dead after three")
	if err := cluster.start(ctx); err != nil {
		return err
	}
	return d.run(ctx)
}

// demo is the producer and what it saw.
type demo struct {
	cluster    *devCluster
	began      time.Time
	client     *kgo.Client
	partitions [demoPartitions]*history.Stream
	pauses     [demoPartitions]pause
	lost       atomic.Int64 // records that the producer gave up
}

// pause is the longest time between two acknowledgements of a partition.
type pause struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

func (p *pause) acknowledged(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		p.longest = max(p.longest, now.Sub(p.last))
	}
	p.last = now
}

func (d *demo) say(format string, args ...any) {
	d.cluster.say("%5.1f s  %s", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) run(ctx context.Context) error {
	var err error
	if d.client, err = kgo.NewClient(kgo.SeedBrokers(d.seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordRetries(1<<30), kgo.MetadataMinAge(100*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond })); err != nil {
		return err
	}
	defer d.client.Close()
	if _, err := kadm.NewClient(d.client).CreateTopic(ctx, demoPartitions, -1, nil, demoTopic); err != nil {
		return fmt.Errorf("create topic %s: %w", demoTopic, err)
	}
	for i := range d.partitions {
		d.partitions[i] = history.New(fmt.Sprintf("%s/%d", demoTopic, i))
	}
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	var writers sync.WaitGroup
	for i := range d.partitions {
		writers.Go(func() { d.write(writing, int32(i)) })
	}
	err = d.story(ctx)
	stopWriting()
	writers.Wait()
	if err != nil {
		return err
	}
	flushing, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	if err := d.client.Flush(flushing); err != nil {
		return fmt.Errorf("%d records are not acknowledged after %v: %w", d.client.BufferedProduceRecords(), demoPatience, err)
	}
	return d.verdict(ctx)
}

func (d *demo) seeds() (all []string) {
	for _, n := range d.cluster.nodes {
		all = append(all, n.Kafka)
	}
	return all
}

// write produces to one partition until ctx ends.
func (d *demo) write(ctx context.Context, partition int32) {
	ticker := time.NewTicker(demoEvery)
	defer ticker.Stop()
	for number := 0; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		record := &kgo.Record{Topic: demoTopic, Partition: partition, Value: []byte(history.Value(demoWriter, number))}
		d.client.Produce(context.WithoutCancel(ctx), record, func(r *kgo.Record, err error) {
			if err != nil {
				d.lost.Add(1)
				return
			}
			d.pauses[partition].acknowledged(time.Now())
			d.partitions[partition].Acknowledged(history.Ack{Writer: demoWriter, Number: number, Offset: r.Offset})
		})
	}
}

func (d *demo) acknowledged() (n int) {
	for _, p := range d.partitions {
		n += p.Acks()
	}
	return n
}

// story is what happens while the producer writes.
func (d *demo) story(ctx context.Context) error {
	d.say("an idempotent producer writes to %d partitions, one record each every %v", demoPartitions, demoEvery)
	if err := sleep(ctx, demoWarmUp); err != nil {
		return err
	}
	streams, err := d.leaders(ctx, 0)
	if err != nil {
		return err
	}
	d.say("%d records acknowledged; %s", d.acknowledged(), describeLeaders(streams))
	victim := d.cluster.nodes[streams[0].Leader-1]
	d.say("kill -9 node %d (process %d)", victim.ID, victim.PID)
	killed := time.Now()
	victim.signal(syscall.SIGKILL)
	streams, err = d.awaitTakeover(ctx, victim.ID)
	if err != nil {
		return err
	}
	d.say("%v after the kill every partition has a live leader; %s", time.Since(killed).Round(100*time.Millisecond), describeLeaders(streams))
	return sleep(ctx, demoAfter)
}

// leaders asks a node other than the one that is gone.
func (d *demo) leaders(ctx context.Context, gone int64) ([]nodes.BucketStatus, error) {
	var table struct {
		Streams []nodes.BucketStatus `json:"streams"`
	}
	for _, n := range d.cluster.nodes {
		if n.ID != gone {
			err := getJSON(ctx, "http://"+n.Admin+"/admin/streams/"+demoTopic, &table)
			return table.Streams, err
		}
	}
	return nil, errors.New("no node is left")
}

// awaitTakeover shows how partitions move, until none is led by the node that is gone and all are open.
func (d *demo) awaitTakeover(ctx context.Context, gone int64) ([]nodes.BucketStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	shown := ""
	for {
		streams, err := d.leaders(ctx, gone)
		if err != nil {
			return nil, err
		}
		if now := describeLeaders(streams); now != shown {
			shown = now
			d.say("%d records acknowledged; %s", d.acknowledged(), now)
		}
		if !slices.ContainsFunc(streams, func(s nodes.BucketStatus) bool {
			return s.Leader == gone || s.State != "open" || s.Epoch != s.LeaderEpoch
		}) {
			return streams, nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("the partitions of node %d were not taken over: %w", gone, err)
		}
	}
}

func describeLeaders(streams []nodes.BucketStatus) string {
	byLeader := map[int64][]string{}
	for _, s := range streams {
		byLeader[s.Leader] = append(byLeader[s.Leader], fmt.Sprint(s.Bucket))
	}
	var parts []string
	for id := int64(0); id <= 3; id++ {
		if len(byLeader[id]) > 0 {
			parts = append(parts, fmt.Sprintf("node %d leads %s", id, strings.Join(byLeader[id], " ")))
		}
	}
	return strings.Join(parts, ", ")
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// verdict reads everything and compares it with what was acknowledged.
func (d *demo) verdict(ctx context.Context) error {
	d.say("the producer has stopped; reading everything from the beginning")
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	final, err := d.readAll(ctx)
	if err != nil {
		return err
	}
	var problems []string
	read, longest := 0, time.Duration(0)
	for i, p := range d.partitions {
		read += len(final[i])
		problems = append(problems, p.Check(final[i])...)
		longest = max(longest, d.pauses[i].longest)
	}
	if lost := d.lost.Load(); lost > 0 {
		problems = append(problems, fmt.Sprintf("the producer gave up %d records", lost))
	}
	for _, problem := range problems {
		d.say("WRONG: %s", problem)
	}
	d.say("%d records acknowledged, %d read; the longest pause of a partition was %v", d.acknowledged(), read, longest.Round(10*time.Millisecond))
	if len(problems) > 0 {
		return errors.New("FAILED: what was read is not what was acknowledged")
	}
	d.say("PASSED: nothing lost, nothing twice, every record where it was acknowledged, in order")
	return nil
}

// readAll reads every partition from its beginning to the last acknowledged record.
func (d *demo) readAll(ctx context.Context) ([demoPartitions][]history.Read, error) {
	var all [demoPartitions][]history.Read
	client, err := kgo.NewClient(kgo.SeedBrokers(d.seeds()...), kgo.ConsumeTopics(demoTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return all, err
	}
	defer client.Close()
	for {
		behind := false
		for i, p := range d.partitions {
			behind = behind || len(all[i]) < p.Acks()
		}
		if !behind {
			return all, nil
		}
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return all, fmt.Errorf("read the topic: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			all[r.Partition] = append(all[r.Partition], history.Read{Offset: r.Offset, Value: string(r.Value)})
		})
	}
}
