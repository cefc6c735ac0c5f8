package layer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/varvedb/varve/layer/kv"
)

// MaxProducerBatches is how many batches of a producer are remembered: clients have at most five in flight.
const MaxProducerBatches = 5

// ProducerState is ("producer", stream, producer): what an idempotent producer did last, as of the stream's durable end. Binary:
//
//	1 byte   version, 1
//	varint   Epoch
//	varint   LastTimestamp
//	uvarint  number of batches, at most 5
//	         of each: varint FirstSeq, varint LastSeq, uvarint Base, uvarint Last
//
// Written by CommitPack and Adopt together with the index entries that hold the batches; cleared by ForgetProducers and DestroyStreams.
type ProducerState struct {
	Stream, Producer int64
	Epoch            int64
	LastTimestamp    int64           // ms, of the last batch
	Batches          []ProducerBatch // up to MaxProducerBatches, oldest first
}

// ProducerBatch is one batch: its sequence numbers and its offsets, all inclusive.
type ProducerBatch struct{ FirstSeq, LastSeq, Base, Last int64 }

const producerVersion = 1

func (p ProducerState) validate() error {
	if p.Stream < 1 || len(p.Batches) > MaxProducerBatches {
		return invalid("producer %d of stream %d: %d batches, at most %d", p.Producer, p.Stream, len(p.Batches), MaxProducerBatches)
	}
	for i, b := range p.Batches {
		if b.Base < 0 || b.Last < b.Base || i > 0 && b.Base <= p.Batches[i-1].Last {
			return invalid("producer %d of stream %d: batches %+v", p.Producer, p.Stream, p.Batches)
		}
	}
	return nil
}

func encodeProducer(p ProducerState) []byte {
	b := make([]byte, 0, 16+32*len(p.Batches))
	b = append(b, producerVersion)
	b = binary.AppendVarint(b, p.Epoch)
	b = binary.AppendVarint(b, p.LastTimestamp)
	b = binary.AppendUvarint(b, uint64(len(p.Batches)))
	for _, batch := range p.Batches {
		b = binary.AppendVarint(b, batch.FirstSeq)
		b = binary.AppendVarint(b, batch.LastSeq)
		b = binary.AppendUvarint(b, uint64(batch.Base))
		b = binary.AppendUvarint(b, uint64(batch.Last))
	}
	return b
}

func (s *Store) decodeProducer(key, value []byte) (ProducerState, error) {
	ids, err := s.ints(key, 2)
	if err != nil {
		return ProducerState{}, err
	}
	p := ProducerState{Stream: ids[0], Producer: ids[1]}
	d := rowDecoder{buf: value}
	d.version(producerVersion)
	p.Epoch, p.LastTimestamp = d.varint(), d.varint()
	count := d.uvarint()
	if count > MaxProducerBatches {
		d.fail("%d batches, at most %d", count, MaxProducerBatches)
	}
	for i := int64(0); i < count && d.err == nil; i++ {
		p.Batches = append(p.Batches, ProducerBatch{FirstSeq: d.varint(), LastSeq: d.varint(), Base: d.uvarint(), Last: d.uvarint()})
	}
	d.finish()
	if d.err == nil {
		d.err = p.validate()
	}
	if d.err != nil {
		return ProducerState{}, fmt.Errorf("%w: %s: %w", ErrCorruptRow, s.describe(key), d.err)
	}
	return p, nil
}

func (s *Store) readProducer(tr kv.ReadTransaction, stream, producer int64) future[ProducerState] {
	key := s.key(spaceProducer, stream, producer)
	return future[ProducerState]{store: s, key: key, value: tr.Get(key), decode: s.decodeProducer}
}

// merge gives what is known of a producer after both states: the newer epoch wins, within one epoch the last batches of both. Of batches that overlap, which
// only differ where one state took several for one, the larger stays.
func (p ProducerState) merge(with ProducerState) ProducerState {
	if with.Epoch != p.Epoch {
		if with.Epoch > p.Epoch {
			return with
		}
		return p
	}
	batches := slices.Concat(p.Batches, with.Batches)
	slices.SortFunc(batches, func(a, b ProducerBatch) int { return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(b.Last, a.Last)) })
	kept := batches[:0]
	for _, b := range batches {
		switch n := len(kept); {
		case n == 0 || b.Base > kept[n-1].Last:
			kept = append(kept, b)
		case b.Last-b.Base > kept[n-1].Last-kept[n-1].Base:
			kept[n-1] = b
		}
	}
	batches = kept
	p.Batches = batches[max(0, len(batches)-MaxProducerBatches):]
	p.LastTimestamp = max(p.LastTimestamp, with.LastTimestamp)
	return p
}

// producersPerRead bounds the rows of one read-only transaction.
const producersPerRead = 5000

// Producers reads what is known of a stream's producers, by id. Those of a stream with many are read in several transactions; the caller
// has the stream open, so that they do not change meanwhile.
func (s *Store) Producers(ctx context.Context, stream int64) ([]ProducerState, error) {
	var states []ProducerState
	begin, end := s.span(spaceProducer, stream)
	for {
		var rows []kv.KeyValue
		err := s.read(ctx, fmt.Sprintf("read producers of stream %d", stream), func(tr kv.ReadTransaction) (err error) {
			rows, err = tr.GetRange(begin, end, kv.RangeOptions{Limit: producersPerRead}).Get()
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			p, err := s.decodeProducer(row.Key, row.Value)
			if err != nil {
				return nil, err
			}
			states = append(states, p)
		}
		if len(rows) < producersPerRead {
			return states, nil
		}
		begin = after(rows[len(rows)-1].Key)
	}
}

// maxForget bounds the producers of one call.
const maxForget = 2000

// ForgetProducers clears the states of producers that have expired, of a stream that node has open at epoch. A state that changed after the call began, because the
// producer came back, is left.
func (s *Store) ForgetProducers(ctx context.Context, node NodeRef, stream, epoch int64, producers []int64) error {
	if len(producers) > maxForget {
		return invalid("%d producers, at most %d can be forgotten at once", len(producers), maxForget)
	}
	var seen [][]byte // the rows as the first run saw them
	return s.transact(ctx, fmt.Sprintf("forget producers of stream %d", stream), node, func(t *tx) error {
		self, read := t.node(node), t.stream(stream)
		values := make([]kv.Value, len(producers))
		for i, producer := range producers {
			values[i] = t.Get(s.key(spaceProducer, stream, producer))
		}
		if err := self.alive(); err != nil {
			return err
		}
		if _, err := read.openBy(node, epoch); err != nil {
			return err
		}
		now := make([][]byte, len(producers))
		for i := range values {
			var err error
			if now[i], err = values[i].Get(); err != nil {
				return err
			}
		}
		if seen == nil {
			seen = now
		}
		for i, producer := range producers {
			if now[i] != nil && bytes.Equal(now[i], seen[i]) {
				t.Clear(s.key(spaceProducer, stream, producer))
			}
		}
		return nil
	})
}
