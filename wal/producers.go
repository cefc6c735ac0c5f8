package wal

import (
	"cmp"
	"slices"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/segment"
)

// producers gathers what the batches of segments say about idempotent producers.
type producers map[producerKey]*layer.ProducerState

type producerKey struct{ stream, producer int64 }

// add notes one batch. Batches of one stream come in order of their offsets.
func (p producers) add(stream int64, by segment.Producer, base, last, timestamp int64) {
	if by.ID == segment.NoProducer {
		return
	}
	key := producerKey{stream, by.ID}
	state := p[key]
	if state == nil {
		state = &layer.ProducerState{Stream: stream, Producer: by.ID, Epoch: by.Epoch}
		p[key] = state
	}
	if by.Epoch != state.Epoch {
		state.Epoch, state.Batches = by.Epoch, nil
	}
	state.LastTimestamp = timestamp
	state.Batches = append(state.Batches, layer.ProducerBatch{FirstSeq: by.FirstSeq, LastSeq: by.LastSeq, Base: base, Last: last})
	if n := len(state.Batches) - layer.MaxProducerBatches; n > 0 {
		state.Batches = slices.Delete(state.Batches, 0, n)
	}
}

// addObject notes every batch of a segment, or none when an index is damaged.
func (p producers) addObject(object *segment.Object) error {
	indexes := make([]segment.Index, len(object.Parts))
	for i := range object.Parts {
		var err error
		if indexes[i], err = object.Index(i); err != nil {
			return err
		}
	}
	for i, part := range object.Parts {
		for _, b := range indexes[i].Batches {
			p.add(part.Stream, b.Producer, b.Base, b.Last, b.MaxTimestamp)
		}
	}
	return nil
}

// states lists them by stream and producer.
func (p producers) states() []layer.ProducerState {
	states := make([]layer.ProducerState, 0, len(p))
	for _, state := range p {
		states = append(states, *state)
	}
	slices.SortFunc(states, func(a, b layer.ProducerState) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Producer, b.Producer))
	})
	return states
}
