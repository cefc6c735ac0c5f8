package embedded

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// commitRequest is what a transaction hands to the committer. Its slices are not changed any more.
type commitRequest struct {
	readVersion int64
	since       time.Time // when the read version was taken
	reads       []keyRange
	writes      []keyRange
	mutations   []mutation
	bytes       int  // of mutations
	reading     bool // a mutation reads what is stored

	state atomic.Int32
	done  chan struct{} // closed once commit and err are set
	// Set by the committer.
	commit kv.Commit
	err    error
}

// States of a request: it is either taken by the sequencer or withdrawn by the transaction, never both.
const (
	requestQueued int32 = iota
	requestTaken
	requestWithdrawn
)

func (r *commitRequest) take() bool {
	return r.state.CompareAndSwap(requestQueued, requestTaken)
}

func (r *commitRequest) withdraw() bool {
	return r.state.CompareAndSwap(requestQueued, requestWithdrawn)
}

// stampOf is the versionstamp of the commit of a version. Every commit has a version of its own, so the batch order is 0.
func stampOf(version int64) (s kv.Versionstamp) {
	binary.BigEndian.PutUint64(s[:], uint64(version))
	return s
}

// commit makes the transaction durable and starts its watches. A transaction that wrote nothing costs no I/O.
func (t *transaction) commit() (kv.Commit, error) {
	if err := t.db.gate.enter(); err != nil {
		return kv.Commit{}, err
	}
	defer t.db.gate.leave()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
		return kv.Commit{}, t.err
	case t.failed != nil:
		return kv.Commit{}, t.failed
	case t.ctx.Err() != nil:
		return kv.Commit{}, fmt.Errorf("transaction interrupted: %w", t.ctx.Err())
	}
	var commit kv.Commit
	if len(t.mutations) > 0 || len(t.writes) > 0 {
		var err error
		if commit, err = t.submit(); err != nil {
			return kv.Commit{}, err
		}
	}
	return commit, t.startWatches()
}

// submit hands the transaction to the committer and waits for the outcome.
func (t *transaction) submit() (kv.Commit, error) {
	if len(t.reads) > 0 && t.view == nil {
		// Conflict ranges without a read count from now.
		if err := t.usable(); err != nil {
			return kv.Commit{}, err
		}
	}
	r := &commitRequest{since: t.since, reads: t.reads, writes: t.writes, mutations: t.mutations, done: make(chan struct{})}
	for _, m := range t.mutations {
		r.bytes += len(m.key) + len(m.param)
		r.reading = r.reading || m.kind == mutationAdd
	}
	if t.view != nil {
		r.readVersion = t.view.version
	}
	select {
	case t.db.committer.queue <- r:
	case <-t.ctx.Done():
		return kv.Commit{}, fmt.Errorf("transaction interrupted: %w", t.ctx.Err())
	}
	select {
	case <-r.done:
		return r.commit, r.err
	case <-t.ctx.Done():
	}
	if r.withdraw() {
		return kv.Commit{}, fmt.Errorf("transaction interrupted: %w", t.ctx.Err())
	}
	select {
	case <-r.done: // both came at once
		return r.commit, r.err
	default:
		return kv.Commit{}, fmt.Errorf("interrupted while committing: %w: %w", kv.ErrCommitUnknown, t.ctx.Err())
	}
}
