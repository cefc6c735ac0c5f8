package streams

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// Cursors are the numbers of fixed intervals of time since an epoch (protocol section 10.1): they make the URLs of repeated polls differ over
// time, so that a cache cannot answer a poller with the same empty answer for ever.
const cursorInterval = 20 * time.Second

var cursorEpoch = time.Date(2024, time.October, 9, 0, 0, 0, 0, time.UTC)

// nextCursor is the cursor to answer with: the current interval, or one beyond the client's when the client is there already.
func nextCursor(client string, now time.Time) string {
	current := int64(now.Sub(cursorEpoch) / cursorInterval)
	if seen, err := strconv.ParseInt(client, 10, 64); err == nil && seen >= current && seen < 1<<62 {
		jitter := time.Duration(1+rand.Int64N(3600)) * time.Second
		return strconv.FormatInt(seen+max(1, int64(jitter/cursorInterval)), 10)
	}
	return strconv.FormatInt(current, 10)
}
