package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/batch"
	"github.com/varvedb/varve/nodes/engine"
)

// produce appends one batch to each partition of the request. The batches are checked and given to their streams before it returns, in
// the order of the request, so that the order of requests on a connection is the order of records. The answer follows when every batch is
// durable or refused, or when the request's timeout has passed: acks 1 and -1 mean the same here, and acks 0 means that there is no answer.
func (s *Server) produce(ctx context.Context, _ *connection, c *call) error {
	r := c.request
	k, err := decodeProduce(r.version, r.body)
	if err != nil {
		return err
	}
	p := &production{server: s, call: c, request: k, results: make([]partitionResult, len(k.partitions)), tables: make(map[int]tableLookup)}
	// One more than there are partitions: nothing is answered before all have been appended.
	p.left = len(k.partitions) + 1
	ctx, cancel := context.WithTimeout(ctx, k.timeout())
	defer cancel()
	waiting, stopWaiting := context.WithTimeout(ctx, s.options.StreamWait)
	defer stopWaiting()
	for i := range k.partitions {
		p.append(ctx, waiting, i)
	}
	p.startTimer(k.timeout() - time.Since(r.arrived))
	p.settle()
	return nil
}

// noTimeout is used for requests that give no timeout, as Kafka lets those with acks 0 and 1.
const noTimeout = 30 * time.Second

func (k *produceRequest) timeout() time.Duration {
	if k.timeoutMillis <= 0 {
		return noTimeout
	}
	return time.Duration(k.timeoutMillis) * time.Millisecond
}

// production is one Produce request at work.
type production struct {
	server  *Server
	call    *call
	request *produceRequest
	tables  map[int]tableLookup // by index of the topic; used by the reader only

	mu       sync.Mutex // guards what follows
	results  []partitionResult
	left     int // results to come, and one for the reader itself
	answered bool
	timer    *time.Timer
}

type tableLookup struct {
	row layer.TableRow
	err error
}

// partitionResult is what became of one partition's batch.
type partitionResult struct {
	settled  bool
	err      error
	result   engine.AppendResult
	logStart int64
}

// append gives partition i's batch to its stream.
func (p *production) append(ctx, waiting context.Context, i int) {
	part := &p.request.partitions[i]
	b, err := p.check(ctx, part)
	if err != nil {
		p.finish(i, partitionResult{err: err})
		return
	}
	var stream appendable
	stream, err = p.server.stream(waiting, p.request.topics[part.topic].ref, part.index)
	if err != nil {
		p.finish(i, partitionResult{err: err})
		return
	}
	if err := stream.Reserve(ctx, len(b.Raw)); err != nil {
		p.finish(i, partitionResult{err: err})
		return
	}
	stream.AppendAsync(engine.Append{Batches: []batch.Batch{b}}, func(result engine.AppendResult, err error) {
		p.finish(i, partitionResult{err: err, result: result, logStart: stream.Start()})
	})
}

// check finds the one batch of a partition and everything that speaks against appending it.
func (p *production) check(ctx context.Context, part *producePartition) (batch.Batch, error) {
	k := p.request
	if k.acks < -1 || k.acks > 1 {
		return batch.Batch{}, refuse(kerr.InvalidRequiredAcks, "acks is %d, want 0, 1 or -1 (all)", k.acks)
	}
	if k.transactionalID != nil {
		return batch.Batch{}, errTransactions
	}
	table, err := p.table(ctx, part.topic)
	if err != nil {
		return batch.Batch{}, err
	}
	return p.server.checkBatch(ctx, p.call.request.version, part.records, p.server.maxMessageBytes(table))
}

func (p *production) table(ctx context.Context, topic int) (layer.TableRow, error) {
	found, ok := p.tables[topic]
	if !ok {
		found.row, found.err = p.server.table(ctx, p.request.topics[topic].ref)
		p.tables[topic] = found
	}
	return found.row, found.err
}

// checkBatch finds the one batch in a partition's records and refuses what a producer may not send. It corrects the batch's largest
// timestamp, which look-ups by time rely on and some producers get wrong.
func (s *Server) checkBatch(ctx context.Context, version int16, records []byte, maxMessageBytes int) (batch.Batch, error) {
	if len(records) == 0 {
		return batch.Batch{}, refuse(kerr.InvalidRecord, "no record batch")
	}
	b, rest, err := batch.Next(records)
	switch {
	case err != nil:
		return batch.Batch{}, err
	case version < 3:
		return batch.Batch{}, refuse(kerr.UnsupportedForMessageFormat, "record batches v2 need a Produce request of version 3 or newer, this is %d", version)
	case len(rest) > 0:
		return batch.Batch{}, refuse(kerr.InvalidRecord, "more than one record batch: %d bytes after the first", len(rest))
	case len(b.Raw) > maxMessageBytes:
		return batch.Batch{}, refuse(kerr.MessageTooLarge, "record batch of %d bytes, max.message.bytes is %d", len(b.Raw), maxMessageBytes)
	}
	if err := b.Check(); err != nil {
		return batch.Batch{}, err
	}
	switch {
	case b.Codec() == batch.Zstd && version < 7:
		return batch.Batch{}, refuse(kerr.UnsupportedCompressionType, "zstd needs a Produce request of version 7 or newer, this is %d", version)
	case b.IsTransactional():
		return batch.Batch{}, errTransactions
	}
	summary, err := s.checkRecords(ctx, b)
	if err != nil {
		return batch.Batch{}, err
	}
	if summary.MaxTimestamp != b.MaxTimestamp {
		batch.SetMaxTimestamp(b.Raw, summary.MaxTimestamp)
		b.MaxTimestamp = summary.MaxTimestamp
	}
	return b, nil
}

const (
	// quickDecompressed is what each connection may decompress a batch to at any time, bytes.
	quickDecompressed = 8 << 20
	// largeDecompressions is how many batches that decompress to more are checked at the same time.
	largeDecompressions = 2
)

// checkRecords reads every record of a batch. Batches that decompress to a lot wait for each other, so that what many connections
// decompress at the same time stays bounded.
func (s *Server) checkRecords(ctx context.Context, b batch.Batch) (batch.Summary, error) {
	most := s.options.MaxDecompressedBytes
	summary, err := b.CheckRecords(min(most, quickDecompressed))
	if !errors.Is(err, batch.ErrTooLarge) || most <= quickDecompressed {
		return summary, err
	}
	select {
	case s.decompressions <- struct{}{}:
	case <-ctx.Done():
		return summary, ctx.Err()
	}
	defer func() { <-s.decompressions }()
	return b.CheckRecords(most)
}

// maxMessageBytes is the table's max.message.bytes.
func (s *Server) maxMessageBytes(table layer.TableRow) int {
	if set, ok := table.Options[nodes.OptionMaxMessageBytes]; ok {
		if n, err := strconv.Atoi(set); err == nil {
			return n
		}
	}
	return s.defaultMaxMessageBytes
}

// finish records what became of partition i. It may be called on the log's goroutine and holds nothing up.
func (p *production) finish(i int, result partitionResult) {
	p.mu.Lock()
	result.settled = true
	p.results[i] = result
	p.mu.Unlock()
	p.settle()
}

// settle counts down, and answers when nothing is left.
func (p *production) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left--
	if p.left == 0 {
		p.answer()
	}
}

// startTimer sees to it that the request is answered in time. What is not durable by then is answered with REQUEST_TIMED_OUT, and may
// yet become durable.
func (p *production) startTimer(left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 1 {
		return // settle will answer at once
	}
	p.timer = time.AfterFunc(max(left, 0), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.answer()
	})
}

// answer answers the call with the results as they are, once. Call with mu held.
func (p *production) answer() {
	if p.answered {
		return
	}
	p.answered = true
	if p.timer != nil {
		p.timer.Stop()
	}
	results := slices.Clone(p.results) // late ones change nothing
	p.call.answer(func() reply { return p.reply(results) })
}

// reply encodes the answer. Without acks there is none, and a failure closes the connection, which is how a client hears that it should
// look for the leader again.
func (p *production) reply(results []partitionResult) reply {
	s, r, k := p.server, p.call.request, p.request
	response := kmsg.NewPtrProduceResponse()
	failed := false
	for i := range k.topics {
		topic := &k.topics[i]
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = topic.ref.name, topic.ref.id
		for j := topic.first; j < topic.end; j++ {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition = k.partitions[j].index
			result := results[j]
			if !result.settled {
				result.err = fmt.Errorf("%w after %v", engine.ErrTimeout, k.timeout())
			}
			failed = failed || result.err != nil
			s.producedPartition(r, topic.ref, &part, result, response)
			t.Partitions = append(t.Partitions, part)
		}
		response.Topics = append(response.Topics, t)
	}
	if k.acks == 0 {
		return reply{close: failed}
	}
	return r.respond(response)
}

// producedPartition fills in the answer for one partition.
func (s *Server) producedPartition(r *request, topic topicRef, part *kmsg.ProduceResponseTopicPartition, result partitionResult, response *kmsg.ProduceResponse) {
	part.ErrorCode = s.partitionCode(r, result.err, topic.String(), part.Partition)
	if result.err == nil {
		part.BaseOffset, part.LogAppendTime, part.LogStartOffset = result.result.Base, result.result.LogAppendTime, result.logStart
		return
	}
	part.BaseOffset, part.LogAppendTime, part.LogStartOffset = -1, -1, -1
	if part.ErrorCode != kerr.UnknownServerError.Code {
		message := result.err.Error()
		part.ErrorMessage = &message
	}
	hint, ok := hintOf(result.err)
	if !ok {
		return
	}
	part.CurrentLeader.LeaderID, part.CurrentLeader.LeaderEpoch = hint.id, hint.epoch
	host, port, ok := address(hint.node)
	if !ok || slices.ContainsFunc(response.Brokers, func(b kmsg.ProduceResponseBroker) bool { return b.NodeID == hint.id }) {
		return
	}
	broker := kmsg.NewProduceResponseBroker()
	broker.NodeID, broker.Host, broker.Port, broker.Rack = hint.id, host, port, rack(hint.node)
	response.Brokers = append(response.Brokers, broker)
}
