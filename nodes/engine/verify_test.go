package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes/batch"
)

// A node that was cut off, and whose streams have moved, must not give a client a final answer from what it knew.
func TestRefusalsOfANodeThatMayBeFencedAreNotFinal(t *testing.T) {
	for name, c := range map[string]struct{ verify, want error }{
		"fenced":           {layer.ErrFenced, ErrFenced},
		"replaced":         {layer.ErrReplaced, ErrFenced},
		"cannot be known":  {context.DeadlineExceeded, ErrUnavailable},
		"serves it indeed": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t)
			u.layer.verify = c.verify
			first := &answers{}
			u.stream.AppendAsync(Append{Batches: []batch.Batch{makeBatch(1, 1, 0, 0)}}, first.done)
			u.log.answer(1, nil)
			require.NoError(t, first.await(t, 1)[0].err)

			_, err := u.stream.Read(t.Context(), Read{Offset: 9, MaxBytes: 100})
			var outside *OffsetOutOfRange
			if c.want == nil {
				require.ErrorAs(t, err, &outside)
			} else {
				require.ErrorIs(t, err, c.want)
				require.NotErrorAs(t, err, &outside)
			}
			_, err = u.stream.Append(t.Context(), Append{Batches: []batch.Batch{makeBatch(1, 1, 0, 7)}})
			if c.want == nil {
				require.ErrorIs(t, err, ErrOutOfOrderSequence)
			} else {
				require.ErrorIs(t, err, c.want)
				require.NotErrorIs(t, err, ErrOutOfOrderSequence)
			}
		})
	}
}
