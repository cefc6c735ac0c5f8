//go:build fdb

package fdb

import (
	"sync"

	apple "github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/varvedb/varve/layer/kv"
)

// source is what the transaction and its snapshot can read.
type source interface {
	Get(apple.KeyConvertible) apple.FutureByteSlice
	GetRange(apple.Range, apple.RangeOptions) apple.RangeResult
	GetReadVersion() apple.FutureInt64
}

// reader is the read half of an attempt, or its snapshot.
type reader struct {
	run    *run
	source source
}

func (r reader) Get(key []byte) kv.Value {
	v := &value{run: r.run}
	if v.err = checkKey(key); v.err == nil {
		v.err = r.run.hand(func() { v.future = r.source.Get(apple.Key(key)) })
	}
	return v
}

func (r reader) GetRange(begin, end []byte, options kv.RangeOptions) kv.Range {
	rows := &rangeRead{run: r.run}
	if rows.err = checkBounds(begin, end); rows.err == nil {
		rows.err = r.run.hand(func() { rows.result = r.source.GetRange(keyRange(begin, end), rangeOptions(options)) })
	}
	return rows
}

func (r reader) Snapshot() kv.ReadTransaction {
	return reader{run: r.run, source: r.run.tr.Snapshot()}
}

func (r reader) ReadVersion() (int64, error) {
	var future apple.FutureInt64
	if err := r.run.hand(func() { future = r.source.GetReadVersion() }); err != nil {
		return 0, err
	}
	version, err := future.Get()
	if err != nil {
		return 0, r.run.failed("get read version", err)
	}
	return version, nil
}

func keyRange(begin, end []byte) apple.KeyRange {
	return apple.KeyRange{Begin: apple.Key(begin), End: apple.Key(end)}
}

// rangeOptions asks for all rows at once: EXACT mode fetches a limit in as few round trips as it can, WANT_ALL the rest.
func rangeOptions(options kv.RangeOptions) apple.RangeOptions {
	mode := apple.StreamingModeWantAll
	if options.Limit > 0 {
		mode = apple.StreamingModeExact
	}
	return apple.RangeOptions{Limit: options.Limit, Reverse: options.Reverse, Mode: mode}
}

// value is a read of one key under way. err is set when it could not be started.
type value struct {
	run    *run
	future apple.FutureByteSlice
	err    error
}

func (v *value) Get() ([]byte, error) {
	if v.err != nil {
		return nil, v.err
	}
	data, err := v.future.Get()
	if err != nil {
		return nil, v.run.failed("get", err)
	}
	return data, nil
}

// rangeRead is a range read under way. The first Get fetches all batches.
type rangeRead struct {
	run    *run
	result apple.RangeResult

	once sync.Once
	rows []kv.KeyValue
	err  error
}

func (r *rangeRead) Get() ([]kv.KeyValue, error) {
	r.once.Do(func() {
		if r.err == nil {
			r.rows, r.err = r.fetch()
		}
	})
	return r.rows, r.err
}

// fetch waits for one batch after the other. The iterator asks for the next batch when it gives the last row of one, so
// that is done in the attempt's hands.
func (r *rangeRead) fetch() ([]kv.KeyValue, error) {
	var rows []kv.KeyValue
	batches := r.result.Iterator()
	for batches.Advance() {
		var row apple.KeyValue
		var failed error
		if err := r.run.hand(func() { row, failed = batches.Get() }); err != nil {
			return nil, err
		}
		if failed != nil {
			return nil, r.run.failed("get range", failed)
		}
		rows = append(rows, kv.KeyValue{Key: row.Key, Value: row.Value})
	}
	return rows, nil
}
