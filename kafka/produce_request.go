package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceRequest is a Produce request. It is decoded here rather than by kmsg since it is the one request that may be large, and kmsg
// allocates by the counts that a request claims.
type produceRequest struct {
	transactionalID *string
	acks            int16
	timeoutMillis   int32
	partitions      []producePartition // in the order of the request
	topics          []produceTopic
}

// produceTopic is a topic of the request; its partitions are partitions[first:end].
type produceTopic struct {
	ref        topicRef
	first, end int
}

type producePartition struct {
	topic   int // index in topics
	index   int32
	records []byte // aliases the frame; nil when the request has null
}

const (
	produceFlexible = 9  // first version with tagged fields
	produceTopicIDs = 13 // first version with topic ids
)

// decodeProduce decodes the body of a Produce request of versions 0 to 13. Error: errMalformed.
func decodeProduce(version int16, body []byte) (*produceRequest, error) {
	b := kbin.Reader{Src: body}
	flexible := version >= produceFlexible
	k := &produceRequest{}
	if version >= 3 {
		if flexible {
			k.transactionalID = b.CompactNullableString()
		} else {
			k.transactionalID = b.NullableString()
		}
	}
	k.acks = b.Int16()
	k.timeoutMillis = b.Int32()
	for range arrayLen(&b, flexible) {
		if !b.Ok() {
			break
		}
		k.decodeTopic(&b, version)
	}
	skipTags(&b, flexible)
	if !b.Ok() {
		return nil, fmt.Errorf("%w: body of a Produce request of version %d is cut short", errMalformed, version)
	}
	return k, nil
}

func (k *produceRequest) decodeTopic(b *kbin.Reader, version int16) {
	flexible := version >= produceFlexible
	t := produceTopic{first: len(k.partitions)}
	switch {
	case version >= produceTopicIDs:
		t.ref = topicRef{byID: true, id: b.Uuid()}
	case flexible:
		t.ref.name = b.CompactString()
	default:
		t.ref.name = b.String()
	}
	for range arrayLen(b, flexible) {
		if !b.Ok() {
			return
		}
		p := producePartition{topic: len(k.topics), index: b.Int32()}
		if flexible {
			p.records = b.CompactNullableBytes()
		} else {
			p.records = b.NullableBytes()
		}
		skipTags(b, flexible)
		k.partitions = append(k.partitions, p)
	}
	skipTags(b, flexible)
	t.end = len(k.partitions)
	k.topics = append(k.topics, t)
}

// arrayLen reads an array's length; null counts as empty.
func arrayLen(b *kbin.Reader, flexible bool) int {
	if flexible {
		return max(0, int(b.CompactArrayLen()))
	}
	return max(0, int(b.ArrayLen()))
}

func skipTags(b *kbin.Reader, flexible bool) {
	if flexible {
		kmsg.SkipTags(b)
	}
}
