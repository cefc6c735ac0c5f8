package kafka

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
)

// fetch reads batches from the partitions of the request. It answers when there are at least MinBytes of them, when any partition has an
// error, or after MaxWaitMillis. Fetch sessions (KIP-227) are not kept: every answer has session id 0, which tells the client to name all its
// partitions in every request.
func (s *Server) fetch(ctx context.Context, conn *connection, c *call) error {
	r := c.request
	k := kmsg.NewPtrFetchRequest()
	if err := r.decode(k); err != nil {
		return err
	}
	turn := conn.fetchTurn(c)
	conn.work(r.api.name, func() {
		if turn != nil {
			select {
			case <-turn:
			case <-ctx.Done():
				c.abandon()
				return
			}
		}
		if err := checkSession(k); err != nil {
			c.reply(r.fetchReply(nil, s.partitionCode(r, err, "", -1)))
			return
		}
		f := newFetching(s, r, k)
		f.run(ctx)
		c.reply(r.fetchReply(f, 0))
	})
	return nil
}

// checkSession refuses a session that the server has never given out.
func checkSession(k *kmsg.FetchRequest) error {
	switch {
	case k.SessionID != 0:
		return refuse(kerr.FetchSessionIDNotFound, "fetch session %d", k.SessionID)
	case k.SessionEpoch > 0:
		return refuse(kerr.InvalidFetchSessionEpoch, "epoch %d without a fetch session", k.SessionEpoch)
	}
	return nil
}

// fetching is one Fetch request at work, on one goroutine.
type fetching struct {
	server     *Server
	request    *request
	k          *kmsg.FetchRequest
	find       func(ctx context.Context, topic topicRef, partition int32) (readable, error)
	partitions []fetchPartition
	budget     int // bytes that may yet be read
	total      int // bytes that were read
	limited    bool
	failed     bool
}

// fetchPartition is one partition of a Fetch request.
type fetchPartition struct {
	topic      int // index in the request
	want       *kmsg.FetchRequestTopicPartition
	stream     readable
	err        error
	batches    [][]byte
	bytes      int
	next       int64 // offset to read on from
	start, end int64 // first offset and high watermark; -1 when not known
}

func newFetching(s *Server, r *request, k *kmsg.FetchRequest) *fetching {
	f := &fetching{server: s, request: r, k: k, budget: min(s.options.MaxFetchBytes, max(1, int(k.MaxBytes)))}
	f.find = func(ctx context.Context, topic topicRef, partition int32) (readable, error) {
		stream, err := s.stream(ctx, topic, partition)
		if err != nil {
			return nil, err
		}
		return stream, nil
	}
	for i := range k.Topics {
		for j := range k.Topics[i].Partitions {
			want := &k.Topics[i].Partitions[j]
			f.partitions = append(f.partitions, fetchPartition{topic: i, want: want, next: want.FetchOffset, start: -1, end: -1})
		}
	}
	return f
}

// topicRef names topic i of the request.
func (f *fetching) topicRef(i int) topicRef {
	if f.request.version >= fetchTopicIDs {
		return topicRef{byID: true, id: uuid.UUID(f.k.Topics[i].TopicID)}
	}
	return topicRef{name: f.k.Topics[i].Topic}
}

// readPatience is for how long a request that waits less reads on from partition to partition, when the object store is slow.
const readPatience = time.Second

// run reads until there is an answer.
func (f *fetching) run(ctx context.Context) {
	wait := time.Duration(f.k.MaxWaitMillis) * time.Millisecond
	deadline, until := time.Now().Add(wait), time.Now().Add(max(wait, readPatience))
	f.open(ctx)
	changed := make(chan struct{}, 1)
	for i := range f.partitions {
		if p := &f.partitions[i]; p.stream != nil {
			stop := p.stream.Notify(changed) // before the first read, so that nothing that comes after it is missed
			defer stop()
		}
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		f.gather(ctx, until)
		if f.failed || f.limited || f.total >= int(f.k.MinBytes) {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-f.server.stop:
			f.stopped()
			return
		case <-ctx.Done():
			return
		}
	}
}

// open finds the streams.
func (f *fetching) open(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.server.options.StreamWait)
	defer cancel()
	for i := range f.partitions {
		p := &f.partitions[i]
		stream, err := f.find(ctx, f.topicRef(p.topic), p.want.Partition)
		if err == nil {
			p.stream = stream
			err = checkLeaderEpoch(p.want.CurrentLeaderEpoch, stream.Epoch())
		}
		if err != nil {
			f.fail(p, err)
		}
	}
}

// gather reads what has become available, partition by partition in the order of the request. The first batch is read however large it
// is; after it the bounds of the request hold. Once there is enough to answer, nothing more is read after the time given.
func (f *fetching) gather(ctx context.Context, until time.Time) {
	for i := range f.partitions {
		p := &f.partitions[i]
		for p.err == nil {
			room := min(f.budget, max(1, int(p.want.PartitionMaxBytes))-p.bytes)
			enough := f.total >= int(f.k.MinBytes) && time.Now().After(until)
			if f.total > 0 && (room <= 0 || enough) {
				p.start, p.end = p.stream.Start(), p.stream.End()
				f.limited = f.limited || p.end > p.next
				break
			}
			if !f.read(ctx, p, room) {
				break
			}
		}
	}
}

// read reads at most room bytes from one partition, and tells whether more may follow at once.
func (f *fetching) read(ctx context.Context, p *fetchPartition, room int) bool {
	result, err := p.stream.Read(ctx, engine.Read{Offset: p.next, MaxBytes: room, MinOneBatch: f.total == 0})
	if err == nil {
		err = f.checkCodec(result.Batches)
	}
	if err != nil {
		if p.bytes == 0 { // what was read before is answered first; the next request will meet the error again
			f.fail(p, err)
		}
		f.limited = true
		return false
	}
	p.start, p.end = result.Start, result.End
	if len(result.Batches) == 0 {
		f.limited = f.limited || result.End > p.next // there is more than there is room for
		return false
	}
	p.next = result.Next
	for _, b := range result.Batches {
		p.bytes += len(b)
		f.total += len(b)
		f.budget -= len(b)
	}
	p.batches = append(p.batches, result.Batches...)
	return p.next < result.End
}

// checkCodec refuses zstd in the versions whose clients may not know it (KIP-110).
func (f *fetching) checkCodec(batches [][]byte) error {
	if f.request.version >= fetchZstd {
		return nil
	}
	for _, raw := range batches {
		b, _, err := batch.Next(raw)
		if err != nil {
			return err
		}
		if b.Codec() == batch.Zstd {
			return refuse(kerr.UnsupportedCompressionType, "records are compressed with zstd, which needs a Fetch request of version %d or newer", fetchZstd)
		}
	}
	return nil
}

func (f *fetching) fail(p *fetchPartition, err error) {
	p.err = err
	f.failed = true
}

// stopped answers the partitions that had nothing: another node will lead them soon.
func (f *fetching) stopped() {
	for i := range f.partitions {
		if p := &f.partitions[i]; p.err == nil && p.bytes == 0 {
			f.fail(p, refuse(kerr.NotLeaderForPartition, "node is stopping"))
		}
	}
}
