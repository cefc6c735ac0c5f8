package objects

import (
	"context"
	"fmt"
	"time"
)

// accessTimeout bounds the check at start: a store that cannot be reached is said so within it.
const accessTimeout = 10 * time.Second

// CheckAccess asks the store for one key, within 10 s, so that a start with a wrong bucket, wrong credentials or an unreachable endpoint
// ends with one line that says which. It does not show that the store can be written to; Probe does.
func CheckAccess(ctx context.Context, store Store) error {
	ctx, cancel := context.WithTimeoutCause(ctx, accessTimeout, fmt.Errorf("no answer within %s", accessTimeout))
	defer cancel()
	if checker, ok := store.(interface{ CheckAccess(context.Context) error }); ok {
		return checker.CheckAccess(ctx)
	}
	if _, err := store.List(ctx, "", "", 1); err != nil {
		return fmt.Errorf("object store %s: %w", store, err)
	}
	return nil
}
