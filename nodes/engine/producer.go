package engine

import (
	"fmt"
	"math"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/segment"
)

// rememberedBatches is how many of a producer's last batches are known by their offsets, as in Kafka.
const rememberedBatches = 5

// producerTable has the producers of a stream by id. It is nil until there is one.
type producerTable map[int64]*producer

// producer is what a stream knows of one producer: of everything that has an offset, durable or not.
type producer struct {
	epoch         int64
	lastTimestamp int64                 // of its last append, ms by this node's clock
	batches       []layer.ProducerBatch // its last ones at this epoch, oldest first; at most rememberedBatches, at least one
	// committed is the state that belongs to the packed end, kept only while it differs from the above. It never has a batch that is not packed:
	// a row that ran ahead of the log would answer "duplicate" for a record that a crash took back.
	committed *layer.ProducerState
	stored    bool // the layer has a row for it
}

// state is the producer's state as a row.
func (p *producer) state(stream, id int64) layer.ProducerState {
	return layer.ProducerState{Stream: stream, Producer: id, Epoch: p.epoch, LastTimestamp: p.lastTimestamp, Batches: append([]layer.ProducerBatch(nil), p.batches...)}
}

func (p *producer) last() layer.ProducerBatch { return p.batches[len(p.batches)-1] }

// verdict is what the check of an append's producers found.
type verdict struct {
	duplicate  bool
	base, last int64 // of the original
	until      int64 // durable end at which the original is durable
	seq        int64 // highest sequence accepted (HTTP)
}

// checkProducers checks every batch of an append against its producer. Call with mu held.
func (s *Stream) checkProducers(a Append) (verdict, error) {
	if a.Producer != nil {
		return s.checkHTTPProducer(*a.Producer)
	}
	var first verdict
	seen := map[int64]segment.Producer(nil) // the batches of this append that come before, by producer
	for i := range a.Batches {
		in := producerOf(nil, a.Batches[i].Header)
		if in.ID == segment.NoProducer {
			continue
		}
		if before, ok := seen[in.ID]; ok {
			if in.Epoch != before.Epoch || !follows(before.LastSeq, in.FirstSeq) || first.duplicate {
				return verdict{}, refuse(ErrOutOfOrderSequence, in, before.Epoch, nextSequence(before.LastSeq))
			}
		} else {
			v, err := s.checkKafkaProducer(in)
			if err != nil {
				return verdict{}, err
			}
			if v.duplicate && len(a.Batches) > 1 {
				return verdict{}, fmt.Errorf("%w: an append of %d batches repeats one of producer %d", ErrInvalid, len(a.Batches), in.ID)
			}
			first = v
		}
		if len(a.Batches) > 1 {
			if seen == nil {
				seen = make(map[int64]segment.Producer)
			}
			seen[in.ID] = in
		}
	}
	return first, nil
}

// checkKafkaProducer is Kafka's rule (KIP-98, KIP-360): duplicates are found among the last five batches of the epoch; a newer epoch
// begins at sequence 0; a producer that is not known, because it is new or was forgotten, may begin anywhere.
func (s *Stream) checkKafkaProducer(in segment.Producer) (verdict, error) {
	p := s.producers[in.ID]
	switch {
	case p == nil:
		return verdict{}, nil
	case in.Epoch < p.epoch:
		return verdict{}, refuse(ErrInvalidProducerEpoch, in, p.epoch, nextSequence(p.last().LastSeq))
	case in.Epoch > p.epoch:
		if in.FirstSeq != 0 {
			return verdict{}, refuse(ErrOutOfOrderSequence, in, p.epoch, 0)
		}
		return verdict{}, nil
	}
	for _, b := range p.batches {
		if b.FirstSeq == in.FirstSeq && b.LastSeq == in.LastSeq {
			return verdict{duplicate: true, base: b.Base, last: b.Last, until: b.Last + 1}, nil
		}
	}
	last := p.last().LastSeq
	switch {
	case follows(last, in.FirstSeq):
		return verdict{}, nil
	case atOrBefore(in.LastSeq, last):
		return verdict{}, refuse(ErrDuplicateTooOld, in, p.epoch, nextSequence(last))
	}
	return verdict{}, refuse(ErrOutOfOrderSequence, in, p.epoch, nextSequence(last))
}

// checkHTTPProducer is the rule of the Durable Streams protocol: every sequence at or below the last one is a duplicate, an unknown producer
// and a newer epoch begin at 0.
func (s *Stream) checkHTTPProducer(in Producer) (verdict, error) {
	got := segment.Producer{ID: in.ID, Epoch: in.Epoch, FirstSeq: in.Seq, LastSeq: in.Seq}
	p := s.producers[in.ID]
	switch {
	case p == nil:
		if in.Seq != 0 {
			return verdict{}, refuse(ErrOutOfOrderSequence, got, -1, 0)
		}
		return verdict{}, nil
	case in.Epoch < p.epoch:
		return verdict{}, refuse(ErrInvalidProducerEpoch, got, p.epoch, p.last().LastSeq+1)
	case in.Epoch > p.epoch:
		if in.Seq != 0 {
			return verdict{}, refuse(ErrOutOfOrderSequence, got, p.epoch, 0)
		}
		return verdict{}, nil
	}
	last := p.last()
	switch {
	case in.Seq == last.LastSeq+1:
		return verdict{}, nil
	case in.Seq > last.LastSeq:
		return verdict{}, refuse(ErrOutOfOrderSequence, got, p.epoch, last.LastSeq+1)
	}
	for _, b := range p.batches {
		if b.FirstSeq <= in.Seq && in.Seq <= b.LastSeq {
			return verdict{duplicate: true, base: b.Base, last: b.Last, until: b.Last + 1, seq: last.LastSeq}, nil
		}
	}
	// Older than what is remembered: it is durable at the latest when the oldest remembered batch is.
	return verdict{duplicate: true, base: -1, last: -1, until: p.batches[0].Last + 1, seq: last.LastSeq}, nil
}

func refuse(kind error, in segment.Producer, epoch, expected int64) error {
	return &ProducerError{Kind: kind, Producer: in.ID, Epoch: epoch, Expected: expected, GotEpoch: in.Epoch, GotSeq: in.FirstSeq}
}

// nextSequence is the sequence after last: Kafka's wrap from the largest int32 to 0.
func nextSequence(last int64) int64 {
	if last == math.MaxInt32 {
		return 0
	}
	return last + 1
}

func follows(last, first int64) bool { return nextSequence(last) == first }

// atOrBefore tells whether sequence a is not after b on the circle of int32 sequences.
func atOrBefore(a, b int64) bool { return (b-a)&math.MaxInt32 < 1<<30 }

// add records an entry that got its offsets. Call with the stream's mu held.
func (t *producerTable) add(s *Stream, e segment.Entry, now int64) {
	if e.Producer.ID == segment.NoProducer {
		return
	}
	if *t == nil {
		*t = make(producerTable)
	}
	p := (*t)[e.Producer.ID]
	if p == nil {
		p = &producer{epoch: -1, committed: &layer.ProducerState{Stream: s.id, Producer: e.Producer.ID, Epoch: -1}}
		(*t)[e.Producer.ID] = p
	} else if p.committed == nil {
		state := p.state(s.id, e.Producer.ID)
		p.committed = &state
	}
	p.epoch, p.batches = addBatch(p.epoch, p.batches, e)
	p.lastTimestamp = now
}

// addBatch gives the epoch and last batches of a producer after the entry. It never changes the array of batches in place.
func addBatch(epoch int64, batches []layer.ProducerBatch, e segment.Entry) (int64, []layer.ProducerBatch) {
	if e.Producer.Epoch != epoch {
		batches = nil
	}
	if len(batches) >= rememberedBatches {
		batches = batches[len(batches)-rememberedBatches+1:]
	}
	added := make([]layer.ProducerBatch, 0, len(batches)+1)
	added = append(added, batches...)
	added = append(added, layer.ProducerBatch{FirstSeq: e.Producer.FirstSeq, LastSeq: e.Producer.LastSeq, Base: e.Base, Last: e.Last})
	return e.Producer.Epoch, added
}
