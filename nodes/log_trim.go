package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// logTrimmer remembers, for one tenure, where the metadata log ended when: what it saw longest ago is trimmed once it is old enough by
// this node's monotonic clock. A new holder so waits a whole LogKeep before it trims.
type logTrimmer struct {
	marks []logMark // oldest first
}

type logMark struct {
	end tuple.Versionstamp
	at  time.Time
}

// logMarks is how many marks are remembered.
const logMarks = 64

// due forgets the marks that are old enough and gives the newest of them.
func (t *logTrimmer) due(now time.Time, keep time.Duration) (tuple.Versionstamp, bool) {
	var last tuple.Versionstamp
	found := false
	for len(t.marks) > 0 && now.Sub(t.marks[0].at) >= keep {
		last, found = t.marks[0].end, true
		t.marks = t.marks[1:]
	}
	return last, found
}

// mark remembers where the log ends now. Marks are at least keep/logMarks apart.
func (t *logTrimmer) mark(end tuple.Versionstamp, now time.Time, keep time.Duration) {
	if k := len(t.marks); k > 0 && (now.Sub(t.marks[k-1].at) < keep/logMarks || t.marks[k-1].end == end) {
		return
	}
	t.marks = append(t.marks, logMark{end, now})
}

func (n *Node) trimLog(ctx context.Context, lease layer.LeaseRef, t *logTrimmer, now time.Time) error {
	head, err := n.layer.LogHead(ctx)
	if err != nil {
		return fmt.Errorf("read head of the metadata log: %w", err)
	}
	t.mark(head, now, n.options.LogKeep)
	through, ok := t.due(now, n.options.LogKeep)
	if !ok {
		return nil
	}
	if err := n.layer.TrimLog(ctx, lease, through); err != nil {
		return fmt.Errorf("trim metadata log: %w", err)
	}
	n.logger.Debug("metadata log trimmed", "through", fmt.Sprintf("%x", through.Transaction))
	return nil
}
