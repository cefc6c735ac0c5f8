package layer

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/varvedb/varve/layer/kv/tuple"
)

// Names of the keyspaces: the first element of every key after the prefix ("varve", cluster).
const (
	spaceFormat     = "format"
	spaceCounter    = "counter"
	spaceLog        = "log"
	spaceLogHead    = "log_head"
	spaceLogTrimmed = "log_trimmed"
	spaceNode       = "node"
	spaceHeartbeat  = "heartbeat"
	spaceLease      = "lease"
	spaceTable      = "table"
	spaceTableName  = "table_name"
	spaceDeleting   = "deleting"
	spaceBucket     = "bucket"
	spaceStream     = "stream"
	spaceOwned      = "owned"
	spaceLoad       = "load"
	spaceOpen       = "open"
	spaceTransfer   = "transfer"
	spaceWAL        = "wal"
	spaceInline     = "inline"
	spaceObject     = "object"
	spaceMeta       = "object_meta"
	spacePrepared   = "prepared"
	spaceDestroy    = "destroy"
	spaceProducer   = "producer"
)

// key is the key of a row: the prefix, then the tuple of its keyspace and elements.
func (s *Store) key(elements ...tuple.Element) []byte {
	return tuple.Tuple(elements).Append(slices.Clip(s.prefix))
}

// span is the range of all rows whose keys extend elements.
func (s *Store) span(elements ...tuple.Element) (begin, end []byte) {
	p := s.key(elements...)
	return append(slices.Clip(p), 0x00), append(slices.Clip(p), 0xff)
}

// after is the first possible key after key.
func after(key []byte) []byte { return append(slices.Clip(key), 0x00) }

// unpack gives the tuple of a key without the prefix.
func (s *Store) unpack(key []byte) (tuple.Tuple, error) {
	rest, ok := bytes.CutPrefix(key, s.prefix)
	if !ok {
		return nil, fmt.Errorf("%w: key %x is outside the prefix of cluster %q", ErrCorruptRow, key, s.cluster)
	}
	t, err := tuple.Unpack(rest)
	if err != nil {
		return nil, fmt.Errorf("%w: key %x: %w", ErrCorruptRow, key, err)
	}
	return t, nil
}

// ints takes the integers that follow the keyspace's name in a key of exactly n of them.
func (s *Store) ints(key []byte, n int) ([]int64, error) {
	t, err := s.unpack(key)
	if err != nil {
		return nil, err
	}
	if len(t) != n+1 {
		return nil, fmt.Errorf("%w: key %v has %d elements, want %d", ErrCorruptRow, t, len(t), n+1)
	}
	out := make([]int64, n)
	for i := range out {
		v, ok := t[i+1].(int64)
		if !ok {
			return nil, fmt.Errorf("%w: key %v: element %d is not an integer", ErrCorruptRow, t, i+1)
		}
		out[i] = v
	}
	return out, nil
}

// describe shows a key for messages.
func (s *Store) describe(key []byte) string {
	t, err := s.unpack(key)
	if err != nil {
		return fmt.Sprintf("%x", key)
	}
	return t.String()
}
