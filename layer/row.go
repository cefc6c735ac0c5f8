package layer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// maxJSONRow bounds a control row, bytes, so that a log record can carry it whole.
const maxJSONRow = 90_000

// marshal is JSON without the escapes that only HTML needs.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, invalid("%T: %v", v, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// encodeRow is the JSON of a control row.
func encodeRow(row any) ([]byte, error) {
	b, err := marshal(row)
	if err == nil && len(b) > maxJSONRow {
		return nil, invalid("row %T of %d bytes, at most %d fit", row, len(b), maxJSONRow)
	}
	return b, err
}

// future is a row that is being read.
type future[T any] struct {
	store  *Store
	key    []byte
	value  kv.Value
	decode func(key, value []byte) (T, error)
}

// get waits for the row; ok tells whether there is one.
func (f future[T]) get() (row T, ok bool, err error) {
	b, err := f.value.Get()
	if err != nil {
		return row, false, fmt.Errorf("read %s: %w", f.store.describe(f.key), err)
	}
	if b == nil {
		return row, false, nil
	}
	row, err = f.decode(f.key, b)
	return row, err == nil, err
}

// decodeJSON decodes a control row.
func decodeJSON[T any](s *Store, key, value []byte) (row T, err error) {
	if err := json.Unmarshal(value, &row); err != nil {
		return row, fmt.Errorf("%w: %s: %w", ErrCorruptRow, s.describe(key), err)
	}
	return row, nil
}

// readJSON starts reading a control row.
func readJSON[T any](s *Store, tr kv.ReadTransaction, key []byte) future[T] {
	return future[T]{store: s, key: key, value: tr.Get(key), decode: func(key, value []byte) (T, error) { return decodeJSON[T](s, key, value) }}
}

// rangeJSON decodes all rows of a range read of control rows.
func rangeJSON[T any](s *Store, r kv.Range) ([]T, error) {
	rows, err := r.Get()
	if err != nil {
		return nil, err
	}
	out := make([]T, len(rows))
	for i, row := range rows {
		if out[i], err = decodeJSON[T](s, row.Key, row.Value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stamp is a time as rows carry it: UTC, without a monotonic reading, so that it equals itself after a round trip.
func stamp(at time.Time) time.Time { return at.Round(0).UTC() }
