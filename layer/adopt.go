package layer

import (
	"context"
	"time"
)

// Adoption is what a recoverer commits for the segments [Seq, Next) of a dead node's log.
type Adoption struct {
	Dead      NodeRef
	Seq, Next int64
	Objects   []ObjectMeta // Object, Size and Kind: the segment objects themselves, in order, or a prepared data object made of inline segments; none without entries
	Entries   []ObjectEntry
	Producers []ProducerState // of the batches in these segments; merged into what the rows know
	At        time.Time
}

// Adopt takes segments of a dead node's log in, by metadata alone, and moves the log's first live number to Next; it clears the inline rows below.
//
// Conditional on the node epoch being fenced or replaced (ErrNotFenced), the log not being sealed (ErrWALSealed), and the first live number being Seq (ErrWALMoved); at Next
// already it is success, whoever moved it. It takes the entries of streams that the dead epoch has open and that lie beyond their durable end, which the first must
// continue exactly (ErrGap, ErrStraddles); others are dropped. An object that got no reference is queued for destruction.
//
// Parts are as for CommitPack. After a part of a data object made of several inline segments was committed, another grouping may meet ErrStraddles: segments taken one by one, and objects, never do.
func (s *Store) Adopt(ctx context.Context, by NodeRef, a Adoption) error {
	work := advance{
		log: a.Dead, from: a.Seq, next: a.Next, objects: a.Objects, entries: a.Entries, producers: a.Producers, at: a.At,
		command: "adopt segments of " + a.Dead.String(), reason: "no record adopted", by: by,
		allowed: func(t *tx) func() error {
			self, dead := t.node(by), t.node(a.Dead)
			return func() error {
				if err := self.alive(); err != nil {
					return err
				}
				return dead.gone()
			}
		},
	}
	if a.Next == a.Seq {
		return invalid("adoption of no segment at %d of %s", a.Seq, a.Dead)
	}
	for _, o := range a.Objects {
		if o.Kind == AdoptedSegment {
			work.segments = append(work.segments, o.Object)
		}
	}
	return s.advance(ctx, work)
}
