package wal

import (
	"context"

	"github.com/varvedb/varve/layer"
)

// loadInline reads the inline segments from number k on, a page at a time. After the fence none can be added; those that somebody else
// takes meanwhile lie below a first live number that has moved, which every commit of this recoverer will meet.
func (r *recoverer) loadInline(ctx context.Context, k int64) error {
	return r.askLayer(ctx, "read inline segments", func(ctx context.Context) error {
		page, err := r.o.Layer.InlineSegments(ctx, r.o.Dead, k, r.o.RunBytes)
		if err != nil {
			return err
		}
		r.inline, r.inlineFrom, r.inlineAll = page, k, len(page) == 0
		return nil
	})
}

// inlineAt gives the inline segment of number k, nil when there is none.
func (r *recoverer) inlineAt(ctx context.Context, k int64) (*layer.InlineSegment, error) {
	for {
		if k >= r.inlineFrom && r.inlineFrom > 0 {
			for i := range r.inline {
				if r.inline[i].Seq == k {
					return &r.inline[i], nil
				}
				if r.inline[i].Seq > k {
					return nil, nil
				}
			}
			if r.inlineAll {
				return nil, nil
			}
		}
		if err := r.loadInline(ctx, k); err != nil {
			return nil, err
		}
	}
}

// isKnownInline tells whether number k is inline as far as was read.
func (r *recoverer) isKnownInline(k int64) bool {
	for i := range r.inline {
		if r.inline[i].Seq == k {
			return true
		}
	}
	return false
}

// inlineRun gives the inline segments from the walk's number on that are taken together.
func (r *recoverer) inlineRun(ctx context.Context) ([]layer.InlineSegment, error) {
	var run []layer.InlineSegment
	size := 0
	for k := r.at; ; k++ {
		if len(run) > 0 && (k < r.singleBelow || k >= r.inline[len(r.inline)-1].Seq+1) {
			return run, nil
		}
		s, err := r.inlineAt(ctx, k)
		if err != nil || s == nil {
			return run, err
		}
		if size += len(s.Data); len(run) > 0 && size > r.o.RunBytes {
			return run, nil
		}
		run = append(run, *s)
	}
}
