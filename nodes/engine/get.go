package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

// get reads length bytes of an object and checks them. Bytes that fail the check are read once more, since they may have been damaged on the
// way; a *segment.CorruptError then means what the store has.
//
// Other errors: objects.ErrNotFound, and those that can be tried again.
func (e *Engine) get(ctx context.Context, object string, pos, length int64, check func([]byte) error) ([]byte, error) {
	data, err := e.getOnce(ctx, object, pos, length, check)
	if errors.Is(err, segment.ErrCorrupt) {
		data, err = e.getOnce(ctx, object, pos, length, check)
	}
	if errors.Is(err, segment.ErrCorrupt) {
		e.corrupt(err)
	}
	return data, err
}

func (e *Engine) getOnce(ctx context.Context, object string, pos, length int64, check func([]byte) error) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, e.options.FetchTimeout)
	defer cancel()
	data, err := e.store.Get(ctx, object, pos, length)
	switch {
	case errors.Is(err, objects.ErrRange):
		return nil, &segment.CorruptError{Object: object, Offset: pos, Reason: fmt.Sprintf("the object ends before the %d bytes from here on", length)}
	case err != nil:
		return nil, fmt.Errorf("read object %s at byte %d: %w", object, pos, err)
	case int64(len(data)) != length:
		return nil, fmt.Errorf("read object %s at byte %d: the store gave %d bytes of %d", object, pos, len(data), length)
	}
	return data, segment.Named(check(data), object)
}

// corrupt reports bytes that failed their check. Nothing else is done about them here: an operator may have better bytes.
func (e *Engine) corrupt(err error) {
	e.metrics.Corruptions.Inc()
	var named *segment.CorruptError
	if errors.As(err, &named) {
		e.logger.Error("corrupt object", "object", named.Object, "offset", named.Offset, "reason", named.Reason)
	}
}
