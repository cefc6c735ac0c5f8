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
	end   tuple.Versionstamp // of the newest record seen
	marks []logMark          // oldest first
}

type logMark struct {
	end tuple.Versionstamp
	at  time.Time
}

const (
	logPage  = 1000 // records that are read at once
	logMarks = 64   // that are remembered
)

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
func (t *logTrimmer) mark(now time.Time, keep time.Duration) {
	if k := len(t.marks); k > 0 && (now.Sub(t.marks[k-1].at) < keep/logMarks || t.marks[k-1].end == t.end) {
		return
	}
	t.marks = append(t.marks, logMark{t.end, now})
}

func (n *Node) trimLog(ctx context.Context, lease layer.LeaseRef, t *logTrimmer, now time.Time) error {
	for {
		page, err := n.layer.ReadLog(ctx, t.end, logPage)
		if err != nil {
			return fmt.Errorf("read metadata log: %w", err)
		}
		if len(page) == 0 {
			break
		}
		t.end = page[len(page)-1].Versionstamp
	}
	t.mark(now, n.options.LogKeep)
	before, ok := t.due(now, n.options.LogKeep)
	if !ok {
		return nil
	}
	if err := n.layer.TrimLog(ctx, lease, before); err != nil {
		return fmt.Errorf("trim metadata log: %w", err)
	}
	n.logger.Debug("metadata log trimmed", "before", fmt.Sprintf("%x", before))
	return nil
}
