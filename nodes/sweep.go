package nodes

import (
	"context"
	"fmt"
	"sort"

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
	sweeps    = 3  // of each log, in one tenure, before it is forgotten
	sweepLogs = 20 // logs that one step sweeps
)

// sweepStep is the step of the sweep loop: what finished logs of dead node epochs left in the object store goes, and then their rows.
func (n *Node) sweepStep(ctx context.Context, lease layer.LeaseRef, s *sweeper) error {
	rows, err := n.layer.WALs(ctx, 0)
	if err != nil {
		return fmt.Errorf("read write-ahead logs: %w", err)
	}
	for _, row := range rows {
		if !row.Done || s.swept[row.Node] < sweeps {
			continue
		}
		if err := n.layer.ForgetWAL(ctx, lease, row.Node); err != nil {
			return err
		}
		n.logger.Info("write-ahead log forgotten", "dead", row.Node.String(), "incarnation", row.Incarnation)
	}
	for _, row := range s.next(rows) {
		found, err := wal.Sweep(ctx, wal.SweepOptions{Layer: n.layer, Store: n.store, Cluster: n.layer.Cluster(), Node: row.Node, Logger: n.logger})
		if err != nil {
			return err
		}
		s.count(row.Node, found.Deleted)
		if found.Deleted > 0 {
			n.logger.Info("write-ahead log swept", "dead", row.Node.String(), "deleted", found.Deleted, "kept", found.Kept)
		}
	}
	return nil
}

// count notes a sweep. The last one must have found nothing, or there may be more to come.
func (s *sweeper) count(node layer.NodeRef, deleted int) {
	if deleted == 0 || s.swept[node] < sweeps-1 {
		s.swept[node]++
	}
}

// next chooses the logs that were swept least, the newest first.
func (s *sweeper) next(rows []layer.WALRow) []layer.WALRow {
	var due []layer.WALRow
	for _, row := range rows {
		if row.Done && s.swept[row.Node] < sweeps {
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
