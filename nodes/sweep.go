package nodes

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal"
)

// sweeper remembers, for one tenure, how often the log of each dead node epoch was swept. One sweep is not enough: a write that a dead
// node sent may land late.
type sweeper struct {
	swept map[layer.NodeRef]int
}

func newSweeper() *sweeper { return &sweeper{swept: map[layer.NodeRef]int{}} }

const (
	sweeps     = 3    // of each log in a tenure
	sweepLogs  = 20   // logs that one step sweeps
	sweepPage  = 1000 // keys that are listed at once
	queueLimit = 10000
)

// sweepStep is the step of the sweep loop: what finished logs of dead node epochs left in the object store goes.
func (n *Node) sweepStep(ctx context.Context, s *sweeper) error {
	rows, err := n.layer.WALs(ctx, 0)
	if err != nil {
		return fmt.Errorf("read write-ahead logs: %w", err)
	}
	for _, row := range s.next(rows) {
		removed, err := n.sweepLog(ctx, row)
		if err != nil {
			return fmt.Errorf("sweep write-ahead log of node %v: %w", row.Node, err)
		}
		s.swept[row.Node]++
		if removed > 0 {
			n.logger.Info("write-ahead log swept", "dead", row.Node.String(), "objects", removed)
		}
	}
	return nil
}

// next chooses the logs that were swept least, the newest first.
func (s *sweeper) next(rows []layer.WALRow) []layer.WALRow {
	var due []layer.WALRow
	for _, row := range rows {
		if row.Done && row.SealedAt != nil && s.swept[row.Node] < sweeps {
			due = append(due, row)
		}
	}
	sort.SliceStable(due, func(i, j int) bool {
		a, b := due[i], due[j]
		if s.swept[a.Node] != s.swept[b.Node] {
			return s.swept[a.Node] < s.swept[b.Node]
		}
		return a.Node.Epoch > b.Node.Epoch
	})
	return due[:min(len(due), sweepLogs)]
}

// sweepLog deletes the objects of one finished log that nothing refers to, but for its seal, which stays for good: it is what refuses a
// late write at the number where the log ended.
func (n *Node) sweepLog(ctx context.Context, row layer.WALRow) (int, error) {
	prefix := wal.LogPrefix(n.layer.Cluster(), row.Node, row.Incarnation)
	removed := 0
	for after := ""; ; {
		page, err := n.store.List(ctx, prefix, after, sweepPage)
		if err != nil {
			return removed, fmt.Errorf("list %s: %w", prefix, err)
		}
		if len(page) == 0 {
			return removed, nil
		}
		after = page[len(page)-1].Key
		var keys []string
		for _, info := range page {
			if seq, err := strconv.ParseInt(strings.TrimPrefix(info.Key, prefix), 10, 64); err == nil && seq != *row.SealedAt {
				keys = append(keys, info.Key)
			}
		}
		loose, err := n.unreferenced(ctx, keys)
		if err != nil {
			return removed, err
		}
		if len(loose) > 0 {
			if err := n.store.Delete(ctx, loose...); err != nil {
				return removed, fmt.Errorf("delete %d objects below %s: %w", len(loose), prefix, err)
			}
			removed += len(loose)
		}
	}
}

// unreferenced keeps the objects of a finished log that have no references and are not in the destroy queue, where readers' grace is waited for. The log
// takes nothing in any more, so an object that lost its last reference is in the queue or gone; the queue is read after the references.
func (n *Node) unreferenced(ctx context.Context, keys []string) ([]string, error) {
	var loose []string
	for _, key := range keys {
		_, referenced, err := n.layer.ObjectMeta(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("read references of %s: %w", key, err)
		}
		if !referenced {
			loose = append(loose, key)
		}
	}
	if len(loose) == 0 {
		return nil, nil
	}
	queue, err := n.layer.DestroyQueue(ctx, queueLimit, time.Now().Add(24*time.Hour))
	if err != nil {
		return nil, err
	}
	if len(queue) == queueLimit {
		return nil, nil // too long to know: a later sweep will
	}
	queued := make(map[string]bool, len(queue))
	for _, d := range queue {
		queued[d.Object] = true
	}
	kept := loose[:0]
	for _, key := range loose {
		if !queued[key] {
			kept = append(kept, key)
		}
	}
	return kept, nil
}
