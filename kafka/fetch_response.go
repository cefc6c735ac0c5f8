package kafka

import (
	"errors"
	"net"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/engine"
)

// First versions of Fetch that have something.
const (
	fetchLogStart       = 5
	fetchSessions       = 7
	fetchZstd           = 10
	fetchReadReplica    = 11
	fetchFlexible       = 12
	fetchTopicIDs       = 13
	fetchNodeEndpoints  = 16
	tagCurrentLeader    = 1 // of a partition
	tagNodeEndpoints    = 0 // of the response
	leaderTagBytes      = 4 + 4 + 1
	fetchPartitionBytes = 64 // about what a partition takes beside its records
)

// fetchReply encodes a Fetch response of versions 4 to 17. It is encoded here rather than by kmsg so that records go from the caches they
// were read from to the connection without being copied. f may be nil, for an answer that has only an error.
func (r *request) fetchReply(f *fetching, code int16) reply {
	size := 32
	if f != nil {
		size += fetchPartitionBytes * len(f.partitions)
	}
	w := fetchWriter{request: r, flexible: r.version >= fetchFlexible, head: r.newFrame(size)}
	w.head = kbin.AppendInt32(w.head, 0) // throttle time
	if r.version >= fetchSessions {
		w.head = kbin.AppendInt16(w.head, code)
		w.head = kbin.AppendInt32(w.head, 0) // session id
	}
	w.topics(f)
	w.endpoints()
	w.cut()
	return seal(w.buffers)
}

// fetchWriter builds a response of encoded parts and, between them, batches that are not copied.
type fetchWriter struct {
	request  *request
	flexible bool
	buffers  net.Buffers
	head     []byte // what is encoded; head[:begun] is in buffers
	begun    int
	leaders  []layer.NodeRow // told of in tagged fields
}

// cut moves what is encoded to buffers.
func (w *fetchWriter) cut() {
	if w.begun < len(w.head) {
		w.buffers = append(w.buffers, w.head[w.begun:len(w.head):len(w.head)])
		w.begun = len(w.head)
	}
}

func (w *fetchWriter) arrayLen(n int) {
	if w.flexible {
		w.head = kbin.AppendCompactArrayLen(w.head, n)
	} else {
		w.head = kbin.AppendArrayLen(w.head, n)
	}
}

func (w *fetchWriter) noTags() {
	if w.flexible {
		w.head = append(w.head, 0)
	}
}

func (w *fetchWriter) topics(f *fetching) {
	if f == nil {
		w.arrayLen(0)
		return
	}
	w.arrayLen(len(f.k.Topics))
	rest := f.partitions
	for i := range f.k.Topics {
		topic := &f.k.Topics[i]
		switch {
		case w.request.version >= fetchTopicIDs:
			w.head = kbin.AppendUuid(w.head, topic.TopicID)
		case w.flexible:
			w.head = kbin.AppendCompactString(w.head, topic.Topic)
		default:
			w.head = kbin.AppendString(w.head, topic.Topic)
		}
		w.arrayLen(len(topic.Partitions))
		for j := range topic.Partitions {
			w.partition(f, &rest[j])
		}
		rest = rest[len(topic.Partitions):]
		w.noTags()
	}
}

func (w *fetchWriter) partition(f *fetching, p *fetchPartition) {
	var outOfRange *engine.OffsetOutOfRange
	if errors.As(p.err, &outOfRange) {
		p.start, p.end = outOfRange.Start, outOfRange.End
	}
	w.head = kbin.AppendInt32(w.head, p.want.Partition)
	w.head = kbin.AppendInt16(w.head, f.server.partitionCode(w.request, p.err, f.topicRef(p.topic).String(), p.want.Partition))
	w.head = kbin.AppendInt64(w.head, p.end) // high watermark
	w.head = kbin.AppendInt64(w.head, p.end) // last stable offset: there are no transactions
	if w.request.version >= fetchLogStart {
		w.head = kbin.AppendInt64(w.head, p.start)
	}
	w.arrayLen(0) // aborted transactions
	if w.request.version >= fetchReadReplica {
		w.head = kbin.AppendInt32(w.head, -1) // preferred read replica
	}
	w.records(p)
	w.partitionTags(p.err)
}

func (w *fetchWriter) records(p *fetchPartition) {
	if w.flexible {
		w.head = kbin.AppendUvarint(w.head, uint32(p.bytes)+1)
	} else {
		w.head = kbin.AppendInt32(w.head, int32(p.bytes))
	}
	if p.bytes > 0 {
		w.cut()
		w.buffers = append(w.buffers, p.batches...)
	}
}

// partitionTags tells who leads when that is the error (KIP-951).
func (w *fetchWriter) partitionTags(err error) {
	if !w.flexible {
		return
	}
	hint, ok := hintOf(err)
	if !ok {
		w.noTags()
		return
	}
	w.head = append(w.head, 1, tagCurrentLeader, leaderTagBytes)
	w.head = kbin.AppendInt32(w.head, hint.id)
	w.head = kbin.AppendInt32(w.head, hint.epoch)
	w.head = append(w.head, 0)
	for _, known := range w.leaders {
		if known.ID == hint.node.ID {
			return
		}
	}
	w.leaders = append(w.leaders, hint.node)
}

// endpoints tells the addresses of the leaders that were named.
func (w *fetchWriter) endpoints() {
	if w.request.version < fetchNodeEndpoints || len(w.leaders) == 0 {
		w.noTags()
		return
	}
	var tag []byte
	count := 0
	for _, n := range w.leaders {
		host, port, ok := address(n)
		if !ok {
			continue
		}
		count++
		tag = kbin.AppendInt32(tag, int32(n.ID))
		tag = kbin.AppendCompactString(tag, host)
		tag = kbin.AppendInt32(tag, port)
		tag = kbin.AppendCompactNullableString(tag, rack(n))
		tag = append(tag, 0)
	}
	tag = append(kbin.AppendCompactArrayLen(nil, count), tag...)
	w.head = append(w.head, 1, tagNodeEndpoints)
	w.head = kbin.AppendUvarint(w.head, uint32(len(tag)))
	w.head = append(w.head, tag...)
}
