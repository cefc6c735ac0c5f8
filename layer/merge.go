package layer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// maxMerge bounds the entries of one merge.
const maxMerge = 500

// MergeEntries replaces exactly the index entries old of a stream, which follow one another, by one entry for the same offsets in a prepared object. old objects that lose their last
// reference are queued for destruction. ErrEntriesChanged when the index holds other entries there: the merge is void, and its object will expire.
func (s *Store) MergeEntries(ctx context.Context, node NodeRef, stream, epoch int64, old []ObjectEntry, merged ObjectEntry, object ObjectMeta, at time.Time) error {
	if err := validateMerge(stream, old, merged, object); err != nil {
		return fmt.Errorf("layer: merge entries of stream %d: %w", stream, err)
	}
	return s.transact(ctx, fmt.Sprintf("merge entries of stream %d", stream), node, func(t *tx) error {
		self, read, refs := t.node(node), t.stream(stream), t.references()
		found := t.GetRange(s.key(spaceObject, stream, merged.Base+1), after(s.key(spaceObject, stream, merged.End)), kv.RangeOptions{Limit: maxMerge + 1})
		refs.load(object.Object)
		for _, e := range old {
			refs.load(e.Object)
		}
		if err := self.alive(); err != nil {
			return err
		}
		if _, err := read.openBy(node, epoch); err != nil {
			return err
		}
		entries, err := s.decodeEntries(found)
		if err != nil {
			return err
		}
		if slices.Equal(entries, []ObjectEntry{merged}) {
			return nil
		}
		if !slices.Equal(entries, old) {
			return fmt.Errorf("%w: stream %d, offsets [%d, %d): %d entries expected, %d found", ErrEntriesChanged, stream, merged.Base, merged.End, len(old), len(entries))
		}
		if err := refs.wait(); err != nil {
			return err
		}
		for _, e := range old {
			t.clearEntry(e)
			if err := refs.drop(e.Object, 1); err != nil {
				return err
			}
		}
		t.setEntry(merged)
		if err := refs.add(object, 1, false, at); err != nil {
			return err
		}
		refs.settle(object.Object)
		return refs.flush("merged", at)
	})
}

func validateMerge(stream int64, old []ObjectEntry, merged ObjectEntry, object ObjectMeta) error {
	if len(old) == 0 || len(old) > maxMerge {
		return invalid("merge of %d entries, 1 to %d fit", len(old), maxMerge)
	}
	if err := merged.validate(); err != nil {
		return err
	}
	if err := object.validate(); err != nil {
		return err
	}
	if object.Kind != DataObject || object.Object != merged.Object || merged.Stream != stream {
		return invalid("merged entry %+v in object %+v", merged, object)
	}
	base := merged.Base
	for _, e := range old {
		if e.Stream != stream || e.Base != base || e.Object == merged.Object {
			return invalid("merge of entry %+v at %d into object %q", e, base, merged.Object)
		}
		base = e.End
	}
	if base != merged.End {
		return invalid("merge of entries up to %d into one up to %d", base, merged.End)
	}
	return nil
}
