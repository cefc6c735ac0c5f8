package kafka

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
)

// fakeStream is a stream of batches of one record each; the record at offset i has size sizes[i].
type fakeStream struct {
	batches  [][]byte
	start    int64
	err      error
	watchers map[chan<- struct{}]int
}

func newFakeStream(sizes ...int) *fakeStream {
	s := &fakeStream{watchers: map[chan<- struct{}]int{}}
	s.append(sizes...)
	return s
}

func (s *fakeStream) append(sizes ...int) {
	for _, size := range sizes {
		raw := batch.Build([]batch.Record{{Value: bytes.Repeat([]byte("x"), size)}}, batch.BuildOptions{})
		batch.SetOffset(raw, int64(len(s.batches)), 3)
		s.batches = append(s.batches, raw)
	}
	for c := range s.watchers {
		c <- struct{}{}
	}
}

func (s *fakeStream) Epoch() int64 { return 3 }
func (s *fakeStream) Start() int64 { return s.start }
func (s *fakeStream) End() int64   { return int64(len(s.batches)) }

func (s *fakeStream) Notify(c chan<- struct{}) func() {
	s.watchers[c]++
	return func() { delete(s.watchers, c) }
}

func (s *fakeStream) Read(_ context.Context, r engine.Read) (engine.ReadResult, error) {
	if s.err != nil {
		return engine.ReadResult{}, s.err
	}
	if r.Offset < s.start || r.Offset > s.End() {
		return engine.ReadResult{}, &engine.OffsetOutOfRange{Offset: r.Offset, Start: s.start, End: s.End()}
	}
	result := engine.ReadResult{Start: s.start, End: s.End(), Next: r.Offset}
	for _, raw := range s.batches[r.Offset:] {
		if len(raw) > r.MaxBytes && !(r.MinOneBatch && len(result.Batches) == 0) {
			break
		}
		r.MaxBytes -= len(raw)
		result.Next++
		result.Batches = append(result.Batches, raw)
	}
	return result, nil
}

// testFetch makes a fetch of the streams, one partition each, from offset 0.
func testFetch(version int16, streams []*fakeStream, change func(*kmsg.FetchRequest)) *fetching {
	s := &Server{options: DefaultOptions(), metrics: NewMetrics(nil), stop: make(chan struct{}), logger: slog.New(slog.DiscardHandler)}
	k := kmsg.NewPtrFetchRequest()
	k.MinBytes, k.MaxBytes = 1, 1<<20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "t"
	for i := range streams {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes = int32(i), 1<<20
		topic.Partitions = append(topic.Partitions, p)
	}
	k.Topics = append(k.Topics, topic)
	if change != nil {
		change(k)
	}
	f := newFetching(s, &request{api: api{key: keyFetch, name: "Fetch"}, version: version}, k)
	f.find = func(_ context.Context, _ topicRef, partition int32) (readable, error) { return streams[partition], nil }
	return f
}

func counts(f *fetching) []int {
	var n []int
	for _, p := range f.partitions {
		n = append(n, len(p.batches))
	}
	return n
}

func TestFetchGivesTheFirstBatchHoweverLargeAndThenKeepsTheLimit(t *testing.T) { // case 15
	f := testFetch(16, []*fakeStream{newFakeStream(10_000, 10), newFakeStream(10)}, func(k *kmsg.FetchRequest) { k.MaxBytes = 1 })
	f.run(t.Context())
	require.Equal(t, []int{1, 0}, counts(f))
	require.Equal(t, int64(1), f.partitions[1].end, "a partition without room still tells its high watermark")
}

func TestFetchKeepsThePartitionLimit(t *testing.T) {
	f := testFetch(16, []*fakeStream{newFakeStream(100, 100, 100), newFakeStream(100, 100, 100)}, func(k *kmsg.FetchRequest) {
		k.Topics[0].Partitions[0].PartitionMaxBytes = 400
	})
	f.run(t.Context())
	require.Equal(t, []int{2, 3}, counts(f))
}

func TestFetchSkipsEmptyPartitionsForTheFirstBatch(t *testing.T) {
	f := testFetch(16, []*fakeStream{newFakeStream(), newFakeStream(5000)}, func(k *kmsg.FetchRequest) { k.MaxBytes = 10 })
	f.run(t.Context())
	require.Equal(t, []int{0, 1}, counts(f))
}

func TestFetchWaitsForMinBytesAcrossPartitions(t *testing.T) {
	a, b := newFakeStream(100), newFakeStream()
	f := testFetch(16, []*fakeStream{a, b}, func(k *kmsg.FetchRequest) { k.MinBytes, k.MaxWaitMillis = 500, 60_000 })
	f.open(t.Context())
	f.gather(t.Context(), time.Now().Add(time.Minute))
	require.Less(t, f.total, 500)
	b.append(400)
	f.gather(t.Context(), time.Now().Add(time.Minute))
	require.Equal(t, []int{1, 1}, counts(f))
	require.GreaterOrEqual(t, f.total, 500)
	require.False(t, f.failed || f.limited)
}

func TestFetchAnswersAtOnceWhenMoreThanItsRoomIsThere(t *testing.T) {
	f := testFetch(16, []*fakeStream{newFakeStream(100, 100, 100)}, func(k *kmsg.FetchRequest) {
		k.MinBytes, k.MaxWaitMillis = 1_000_000, 3_600_000
		k.Topics[0].Partitions[0].PartitionMaxBytes = 400
	})
	f.run(t.Context())
	require.Equal(t, []int{2}, counts(f))
}

func TestFetchEndsAtMaxWait(t *testing.T) {
	s := newFakeStream()
	f := testFetch(16, []*fakeStream{s}, func(k *kmsg.FetchRequest) { k.MaxWaitMillis = 5 })
	f.run(t.Context())
	require.Equal(t, []int{0}, counts(f))
	require.NoError(t, f.partitions[0].err)
	require.Empty(t, s.watchers, "nobody is told any more")
}

func TestFetchErrorsAnswerAtOnce(t *testing.T) {
	broken := newFakeStream(1)
	broken.err = errors.New("broken")
	trimmed := newFakeStream(1, 1, 1)
	trimmed.start = 2
	f := testFetch(16, []*fakeStream{newFakeStream(), broken, trimmed, newFakeStream()}, func(k *kmsg.FetchRequest) {
		k.MaxWaitMillis, k.Topics[0].Partitions[3].CurrentLeaderEpoch = 3_600_000, 2
	})
	f.run(t.Context())
	require.NoError(t, f.partitions[0].err)
	require.Equal(t, kerr.UnknownServerError, partitionError(f.partitions[1].err))
	require.Equal(t, kerr.OffsetOutOfRange, partitionError(f.partitions[2].err))
	require.Equal(t, kerr.FencedLeaderEpoch, partitionError(f.partitions[3].err))
}

func TestFetchOfZstdNeedsVersion10(t *testing.T) { // case 8
	zstd, other := newFakeStream(10), newFakeStream(10)
	zstd.batches[0][22] = byte(batch.Zstd)
	for version, want := range map[int16]*kerr.Error{9: kerr.UnsupportedCompressionType, 10: nil} {
		f := testFetch(version, []*fakeStream{zstd, other}, nil)
		f.run(t.Context())
		require.Equal(t, want, partitionError(f.partitions[0].err), version)
		require.Equal(t, want != nil, f.partitions[0].bytes == 0)
		require.NoError(t, f.partitions[1].err)
		require.Len(t, f.partitions[1].batches, 1)
	}
}

func TestFetchEndsWithNotLeaderWhenTheServerStops(t *testing.T) {
	f := testFetch(16, []*fakeStream{newFakeStream(), newFakeStream(10)}, func(k *kmsg.FetchRequest) { k.MaxWaitMillis, k.MinBytes = 3_600_000, 1000 })
	close(f.server.stop)
	f.run(t.Context())
	require.Equal(t, kerr.NotLeaderForPartition, partitionError(f.partitions[0].err))
	require.NoError(t, f.partitions[1].err, "what was read is given")
	require.Len(t, f.partitions[1].batches, 1)
}

// TestFetchReplyAgreesWithKmsg decodes our own encoding by kmsg, encodes that again, and compares.
func TestFetchReplyAgreesWithKmsg(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := int16(rapid.IntRange(4, 17).Draw(t, "version"))
		streams := []*fakeStream{newFakeStream(rapid.SliceOfN(rapid.IntRange(0, 300), 0, 4).Draw(t, "a")...), newFakeStream(20, 30)}
		f := testFetch(version, streams, func(k *kmsg.FetchRequest) {
			second := kmsg.NewFetchRequestTopic()
			second.Topic = "u"
			k.Topics = append(k.Topics, second)
			k.Topics[0].TopicID, k.Topics[1].TopicID = uuid.New(), uuid.New()
		})
		f.run(context.Background())
		if rapid.Bool().Draw(t, "moved") {
			moved := &nodes.NotLeader{Leader: layer.NodeRow{ID: 7, Kafka: "seven:9092", Rack: rapid.SampledFrom([]string{"", "r"}).Draw(t, "rack")}, LeaderEpoch: 9}
			f.fail(&f.partitions[1], moved)
			f.partitions[1].batches, f.partitions[1].bytes = nil, 0
		}
		r := *f.request
		r.correlation = 12345
		frame := bytes.Join(r.fetchReply(f, 0).buffers, nil)

		k := kmsg.NewPtrFetchResponse()
		k.SetVersion(version)
		head := 8
		if version >= fetchFlexible {
			head++
		}
		require.NoError(t, k.ReadFrom(frame[head:]))
		require.Equal(t, frame[head:], k.AppendTo(nil))
		require.Len(t, k.Topics, 2)
		require.True(t, bytes.Equal(bytes.Join(f.partitions[0].batches, nil), k.Topics[0].Partitions[0].RecordBatches))
		if code := k.Topics[0].Partitions[1].ErrorCode; code != 0 && version >= fetchNodeEndpoints {
			require.Equal(t, int32(7), k.Topics[0].Partitions[1].CurrentLeader.LeaderID)
			require.Equal(t, "seven", k.Brokers[0].Host)
		}
	})
}
