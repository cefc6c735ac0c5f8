package layer

import (
	"slices"

	"github.com/varvedb/varve/layer/kv"
)

// segmentRefs reads what is known of the segments that cease to be live: of a few of them that they were adopted, of most nothing. The keys of a log's segments
// follow one another, so that one range read tells, in place of a read for each.
type segmentRefs struct {
	keys []string
	rows kv.Range
}

// loadSegments starts reading what is known of segment objects, which are never prepared. Those that were loaded by load keep that.
func (r *references) loadSegments(keys []string) {
	if len(keys) == 0 {
		return
	}
	begin, end := r.t.s.key(spaceMeta, slices.Min(keys)), after(r.t.s.key(spaceMeta, slices.Max(keys)))
	r.segments = segmentRefs{keys: keys, rows: r.t.GetRange(begin, end, kv.RangeOptions{Limit: len(keys) + 1})}
}

func (s *segmentRefs) wait(r *references) error {
	if s.rows == nil {
		return nil
	}
	rows, err := s.rows.Get()
	if err != nil {
		return err
	}
	if len(rows) > len(s.keys) { // more than these segments lie there, so that some may be beyond the limit
		for _, key := range s.keys {
			r.load(key)
		}
		return nil
	}
	known := make(map[string]ObjectMeta, len(rows))
	for _, row := range rows {
		meta, err := decodeJSON[ObjectMeta](r.t.s, row.Key, row.Value)
		if err != nil {
			return err
		}
		known[meta.Object] = meta
	}
	for _, key := range s.keys {
		if r.objects[key] == nil {
			meta, ok := known[key]
			r.objects[key] = &reference{object: key, meta: meta, existed: ok, segment: true}
		}
	}
	return nil
}
