package wal

import (
	"context"
	"errors"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects"
)

var errNotWritten = errors.New("not yet written")

// ChooseMode says what fences segments in this store; requested "" lets the probe decide.
func ChooseMode(ctx context.Context, store objects.Store, requested layer.FenceMode) (layer.FenceMode, error) {
	return "", errNotWritten
}
