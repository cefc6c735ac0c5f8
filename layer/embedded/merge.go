package embedded

import (
	"slices"

	"github.com/varvedb/varve/layer/kv"
)

// mergedRows walks the stored rows of a range together with a transaction's own writes.
type mergedRows struct {
	own    *ownWrites
	stored *rows
	keys   []string // own keys that are left, in the direction of the walk

	key, value []byte // the stored row that is next
	more       bool   // whether there is one
}

func (t *transaction) merge(rng keyRange, reverse bool) (*mergedRows, error) {
	stored, err := t.view.rows(rng, reverse)
	if err != nil {
		return nil, err
	}
	m := &mergedRows{own: &t.own, stored: stored}
	if !t.own.empty() {
		m.keys = t.own.keysIn(rng)
		if reverse {
			m.keys = slices.Clone(m.keys)
			slices.Reverse(m.keys)
		}
	}
	return m, m.advance(stored.next())
}

// advance takes the next stored row, passing over ranges that the transaction cleared.
func (m *mergedRows) advance(key, value []byte, more bool, err error) error {
	for more && err == nil {
		i, cleared := m.own.clearedAround(key)
		if !cleared {
			break
		}
		key, value, more, err = m.stored.seekPast(m.own.cleared[i])
	}
	m.key, m.value, m.more = key, value, more
	return err
}

// next gives the next row that the transaction sees, in slices of its own.
func (m *mergedRows) next() (row kv.KeyValue, ok bool, err error) {
	for {
		switch {
		case len(m.keys) > 0 && (!m.more || !m.stored.before(m.key, []byte(m.keys[0]))):
			row.Key = []byte(m.keys[0])
			m.keys = m.keys[1:]
			var stored []byte
			if m.more && string(m.key) == string(row.Key) {
				stored = cloneValue(m.value)
				if err := m.advance(m.stored.next()); err != nil {
					return row, false, err
				}
			}
			if row.Value = slices.Clone(m.own.entries[string(row.Key)].apply(stored)); row.Value != nil {
				return row, true, nil
			}
		case m.more:
			// One allocation for both; neither can grow into the other.
			n := len(m.key)
			both := append(append(make([]byte, 0, n+len(m.value)), m.key...), m.value...)
			row = kv.KeyValue{Key: both[:n:n], Value: both[n:]}
			return row, true, m.advance(m.stored.next())
		default:
			return row, false, nil
		}
	}
}
