package wal

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects"
)

// How the probe of a store races: that many rounds of that many writers, below that prefix.
const (
	probeRounds  = 8
	probeWriters = 4
	probePrefix  = "probe"
)

// ChooseMode says what is to fence the segments of a node that registers now, after a probe of what the store's conditional writes can be
// trusted with. requested is both, store, layer, or empty for both; where the store lets two writers win, or does not know conditional
// writes, it is layer whatever was requested. Mode layer is not probed. An error means that the store could not be
// used, or that requested is no mode.
func ChooseMode(ctx context.Context, store objects.Store, requested layer.FenceMode) (layer.FenceMode, error) {
	switch requested {
	case layer.FenceLayer:
		return requested, nil
	case "":
		requested = layer.FenceBoth
	case layer.FenceBoth, layer.FenceStore:
	default:
		return "", fmt.Errorf("fence mode %q is none of %q, %q, %q", requested, layer.FenceBoth, layer.FenceStore, layer.FenceLayer)
	}
	found, err := objects.Probe(ctx, store, probePrefix, probeRounds, probeWriters)
	if err != nil {
		return "", fmt.Errorf("probe conditional writes of %s: %w", store, err)
	}
	if !found.Atomic {
		return layer.FenceLayer, nil
	}
	return requested, nil
}
