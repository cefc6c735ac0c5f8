//go:build !fdb

package fdb

import "context"

// Supported tells whether this binary was built with the tag fdb.
const Supported = false

func openEngine(context.Context, Options) (engine, error) { return nil, ErrNotBuilt }

func stopNetwork() error { return nil }
