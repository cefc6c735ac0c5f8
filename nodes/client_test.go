package nodes

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
)

// client appends as a Kafka producer does: idempotent, one batch at a time per bucket, tried again until it is acknowledged.
type client struct {
	c  *cluster
	id int64
}

func (c *cluster) client() *client {
	c.t.Helper()
	var id int64
	c.eventually("a producer id", func() bool {
		for _, m := range c.alive() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			got, err := m.ProducerID(ctx)
			cancel()
			if err == nil {
				id = got
				return true
			}
		}
		return false
	})
	return &client{c, id}
}

// record is the payload of one record; it says where it belongs.
func record(table string, bucket int, seq int32) string {
	return fmt.Sprintf("%s/%d#%d", table, bucket, seq)
}

// build makes a batch of records seq, seq+1, … of a producer.
func build(table string, bucket int, producer int64, seq int32, count int) batch.Batch {
	records := make([]batch.Record, count)
	for i := range records {
		records[i] = batch.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(record(table, bucket, seq+int32(i)))}
	}
	raw := batch.Build(records, batch.BuildOptions{Producer: &batch.Producer{ID: producer, BaseSequence: seq}})
	b, _, err := batch.Next(raw)
	if err != nil {
		panic(err)
	}
	return b
}

// leader finds the stream where it is served, following redirects.
func (c *cluster) leader(ctx context.Context, table string, bucket int) (*engine.Stream, *member, error) {
	err := errors.New("no node is alive")
	for _, m := range c.alive() {
		var s *engine.Stream
		s, err = m.Stream(ctx, table, bucket)
		if err == nil {
			return s, m, nil
		}
		var elsewhere *NotLeader
		if errors.As(err, &elsewhere) {
			c.mu.Lock()
			to := c.members[elsewhere.Leader.ID]
			c.mu.Unlock()
			if to == nil {
				continue
			}
			if s, err = to.Stream(ctx, table, bucket); err == nil {
				return s, to, nil
			}
		}
	}
	return nil, nil, err
}

// try appends once.
func (p *client) try(ctx context.Context, table string, bucket int, seq int32, count int) (engine.AppendResult, error) {
	s, _, err := p.c.leader(ctx, table, bucket)
	if err != nil {
		return engine.AppendResult{}, err
	}
	return s.Append(ctx, engine.Append{Batches: []batch.Batch{build(table, bucket, p.id, seq, count)}})
}

// append appends until it is acknowledged or ctx ends. A refusal that says that a record was lost or doubled fails the test.
func (p *client) append(ctx context.Context, table string, bucket int, seq int32, count int) (engine.AppendResult, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		result, err := p.try(attempt, table, bucket, seq, count)
		cancel()
		switch {
		case err == nil:
			return result, nil
		case errors.Is(err, engine.ErrOutOfOrderSequence), errors.Is(err, engine.ErrInvalidProducerEpoch), errors.Is(err, engine.ErrDuplicateTooOld):
			p.c.t.Errorf("append %s: %v", record(table, bucket, seq), err)
			return result, err
		case ctx.Err() != nil:
			return result, fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// traffic is a table "t" and one producer that appends to each of its buckets; what was acknowledged is remembered.
type traffic struct {
	*client
	acked   *checker
	buckets int
	next    int32 // sequence
}

// traffic makes the table.
func (c *cluster) traffic(buckets int) *traffic {
	c.t.Helper()
	_, err := c.alive()[0].CreateTable(c.ctx(), CreateTable{Name: "t", Buckets: buckets})
	require.NoError(c.t, err)
	return &traffic{client: c.client(), acked: newChecker(), buckets: buckets}
}

// busyCluster is a cluster of so many nodes, with a table of so many buckets to which so many batches were appended.
func busyCluster(t testing.TB, nodes int64, buckets, batches int) (*cluster, []*member, *traffic) {
	t.Helper()
	c := newCluster(t)
	members := c.startAll(nodes)
	f := c.traffic(buckets)
	f.flow(batches)
	return c, members, f
}

// flow appends so many batches of two records to every bucket.
func (f *traffic) flow(batches int) {
	f.c.t.Helper()
	for range batches {
		for bucket := range f.buckets {
			f.send(bucket)
		}
		f.next += 2
	}
}

// send appends the next batch to one bucket and gives the offset of its first record. The sequence is the caller's to move on.
func (f *traffic) send(bucket int) int64 {
	f.c.t.Helper()
	result, err := f.append(f.c.ctx(), "t", bucket, f.next, 2)
	require.NoError(f.c.t, err)
	f.acked.ack("t", bucket, result.Base, f.next, 2)
	return result.Base
}

// check reads every bucket: what was acknowledged is there once, where it was acknowledged.
func (f *traffic) check() {
	f.c.t.Helper()
	f.acked.check(f.c, "t", f.buckets)
}

// ledBy is a bucket that the node leads.
func (f *traffic) ledBy(m *member) int {
	f.c.t.Helper()
	for bucket := range f.buckets {
		if _, leader, err := f.c.leader(f.c.ctx(), "t", bucket); err == nil && leader == m {
			return bucket
		}
	}
	f.c.t.Fatalf("node %d leads no bucket", m.ref.ID)
	return 0
}

// checker remembers what was acknowledged.
type checker struct {
	mu    sync.Mutex
	acked map[string]map[int64]string // by bucket, then offset
	twice []string                    // offsets that were acknowledged for two records: the first one is lost
}

func newChecker() *checker { return &checker{acked: map[string]map[int64]string{}} }

func (k *checker) ack(table string, bucket int, base int64, seq int32, count int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := fmt.Sprintf("%s/%d", table, bucket)
	if k.acked[name] == nil {
		k.acked[name] = map[int64]string{}
	}
	for i := range count {
		offset, value := base+int64(i), record(table, bucket, seq+int32(i))
		if before, ok := k.acked[name][offset]; ok && before != value {
			k.twice = append(k.twice, fmt.Sprintf("offset %d of %s was acknowledged for %q and then for %q", offset, name, before, value))
		}
		k.acked[name][offset] = value
	}
}

func (k *checker) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	total := 0
	for _, offsets := range k.acked {
		total += len(offsets)
	}
	return total
}

// readAll reads a bucket from its start to its durable end, from its leader.
func (c *cluster) readAll(table string, bucket int) []batch.Record {
	c.t.Helper()
	var records []batch.Record
	c.eventually(fmt.Sprintf("%s/%d can be read", table, bucket), func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s, _, err := c.leader(ctx, table, bucket)
		if err != nil {
			return false
		}
		records = records[:0]
		for offset := s.Start(); offset < s.End(); {
			read, err := s.Read(ctx, engine.Read{Offset: offset, MaxBytes: 1 << 20, MinOneBatch: true})
			if err != nil {
				c.t.Logf("read %s/%d at %d: %v", table, bucket, offset, err)
				return false
			}
			for _, raw := range read.Batches {
				b, _, err := batch.Next(raw)
				require.NoError(c.t, err)
				require.NoError(c.t, b.CheckCRC())
				list, err := b.Records(1 << 20)
				require.NoError(c.t, err)
				records = append(records, list...)
			}
			require.Greater(c.t, read.Next, offset)
			offset = read.Next
		}
		return true
	})
	return records
}

// check reads every bucket: each acknowledged record is at its offset, offsets have no gaps, no record is there twice.
func (k *checker) check(c *cluster, table string, buckets int) {
	c.t.Helper()
	k.mu.Lock()
	require.Empty(c.t, k.twice)
	k.mu.Unlock()
	for bucket := range buckets {
		name := fmt.Sprintf("%s/%d", table, bucket)
		found := map[int64]string{}
		seen := map[string]int64{}
		for i, r := range c.readAll(table, bucket) {
			require.Equal(c.t, int64(i), r.Offset, "offsets of %s have a gap", name)
			found[r.Offset] = string(r.Value)
			if at, twice := seen[string(r.Value)]; twice {
				c.t.Errorf("%s: record %q is at offset %d and at %d", name, r.Value, at, r.Offset)
			}
			seen[string(r.Value)] = r.Offset
		}
		k.mu.Lock()
		acked := k.acked[name]
		offsets := make([]int64, 0, len(acked))
		for offset := range acked {
			offsets = append(offsets, offset)
		}
		k.mu.Unlock()
		sort.Slice(offsets, func(i, j int) bool { return offsets[i] < offsets[j] })
		for _, offset := range offsets {
			if found[offset] != acked[offset] {
				c.t.Errorf("%s: acknowledged %q at offset %d, found %q there (of %d)", name, acked[offset], offset, found[offset], len(found))
				break
			}
		}
	}
}
