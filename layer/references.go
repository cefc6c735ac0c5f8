package layer

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// references is what one transaction does to the objects that index entries point into. An object stays while one of three
// things keeps it: references (Refs), its being prepared, and its being a live segment (Held). When the last one ends, the object
// is queued for destruction, once, in the transaction that ended it.
//
// Use: load every object that may be touched (which starts the reads), wait, change, flush.
type references struct {
	t        *tx
	objects  map[string]*reference
	segments segmentRefs
}

type reference struct {
	object       string
	metaRead     future[ObjectMeta]
	preparedRead future[PreparedRow]

	meta     ObjectMeta
	existed  bool // the meta row, before
	touched  bool
	prepared bool // still
	settled  bool // the prepared row is to be cleared
	passed   bool // a segment that has ceased to be live
	segment  bool // loaded by loadSegments
}

func (t *tx) references() *references {
	return &references{t: t, objects: map[string]*reference{}}
}

// load starts reading what is known of an object.
func (r *references) load(object string) {
	if _, ok := r.objects[object]; ok {
		return
	}
	r.objects[object] = &reference{
		object:       object,
		metaRead:     r.t.s.readMeta(r.t, object),
		preparedRead: readJSON[PreparedRow](r.t.s, r.t, r.t.s.key(spacePrepared, object)),
	}
}

func (r *references) wait() error {
	if err := r.segments.wait(r); err != nil {
		return err
	}
	for _, ref := range r.objects {
		if ref.segment {
			continue
		}
		var err error
		if ref.meta, ref.existed, err = ref.metaRead.get(); err != nil {
			return err
		}
		if _, ref.prepared, err = ref.preparedRead.get(); err != nil {
			return err
		}
	}
	return nil
}

// add counts n more references to an object that was loaded. A data object must be prepared or referenced (ErrNotPrepared): else its bytes may be gone.
// held says that it is a live segment, and is for adopted ones only.
func (r *references) add(info ObjectMeta, n int64, held bool, at time.Time) error {
	ref := r.objects[info.Object]
	if !ref.existed && ref.meta.Object == "" {
		if info.Kind == DataObject && !ref.prepared {
			return fmt.Errorf("%w: %q", ErrNotPrepared, info.Object)
		}
		ref.meta = ObjectMeta{Object: info.Object, Size: info.Size, Kind: info.Kind, CreatedAt: stamp(at)}
	}
	if ref.meta.Size != info.Size || ref.meta.Kind != info.Kind {
		return invalid("object %q is %s of %d bytes, said to be %s of %d", info.Object, ref.meta.Kind, ref.meta.Size, info.Kind, info.Size)
	}
	ref.touched = true
	ref.meta.Refs += n
	ref.meta.Held = held
	return nil
}

// drop counts n fewer. An object without a meta row, or with fewer references than entries, is corruption: refused, so that nothing is
// destroyed because metadata is missing.
func (r *references) drop(object string, n int64) error {
	ref := r.objects[object]
	if ref.meta.Object == "" || ref.meta.Refs < n {
		return fmt.Errorf("%w: (%q, %q): %d references by index entries, %d counted", ErrCorruptRow, spaceMeta, object, n, ref.meta.Refs)
	}
	ref.touched = true
	ref.meta.Refs -= n
	return nil
}

// settle ends an object's being prepared.
func (r *references) settle(object string) {
	ref := r.objects[object]
	if ref.prepared {
		ref.touched, ref.settled, ref.prepared = true, true, false
	}
}

// pass ends a segment's being live.
func (r *references) pass(object string) {
	ref := r.objects[object]
	ref.touched, ref.passed, ref.meta.Held = true, true, false
}

// flush writes what changed and queues what nothing keeps any more.
func (r *references) flush(reason string, at time.Time) error {
	for _, object := range slices.Sorted(maps.Keys(r.objects)) {
		ref := r.objects[object]
		if !ref.touched {
			continue
		}
		if ref.settled {
			r.t.Clear(r.t.s.key(spacePrepared, object))
		}
		if ref.meta.Refs > 0 || ref.meta.Held {
			r.t.setJSON(r.t.s.key(spaceMeta, object), ref.meta)
			continue
		}
		if ref.existed {
			r.t.Clear(r.t.s.key(spaceMeta, object))
		}
		if !ref.prepared && (ref.existed || ref.settled || ref.passed) {
			if err := r.t.doom(object, reason, at); err != nil {
				return err
			}
		}
	}
	return nil
}
