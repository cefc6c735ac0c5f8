package engine

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/varvedb/varve/layer"
)

// housekeepLoop gives up idle readahead, forgets expired producers and records ends of streams that could not be recorded at once.
func (e *Engine) housekeepLoop(ctx context.Context) {
	e.every(ctx, "housekeep", e.options.HousekeepInterval, e.housekeep)
}

func (e *Engine) housekeep(ctx context.Context) error {
	var errs []error
	now := time.Now()
	idle := func(c *cursor) bool { return now.Sub(c.used) > cursorIdle }
	for _, s := range e.Streams() {
		s.readers.release(e, idle)
		err := s.housekeep(ctx, now)
		if terminal(err) || ctx.Err() != nil {
			return err
		}
		if err != nil && len(errs) < 10 {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// housekeep does what one stream needs of the metadata. It gives up soon when that is away: there are other streams, and another round.
func (s *Stream) housekeep(ctx context.Context, now time.Time) error {
	if !s.unfinishedEnd() && !s.hasProducers() {
		return nil // most streams of a node that has many
	}
	ctx, cancel := context.WithTimeout(ctx, s.engine.options.LookupTimeout)
	defer cancel()
	if s.unfinishedEnd() {
		if err := s.finishEnd(ctx); err != nil {
			return err
		}
	}
	return s.expireProducers(ctx, now)
}

// loadProducers makes the table of what the layer knows. Producers count as idle from now on at the earliest: one that could not reach the stream while it
// had no leader must not be forgotten for that before it can try again, or its retry would be a second record.
func loadProducers(rows []layer.ProducerState, now time.Time) producerTable {
	var t producerTable
	for _, row := range rows {
		if len(row.Batches) == 0 {
			continue
		}
		if t == nil {
			t = make(producerTable, len(rows))
		}
		t[row.Producer] = &producer{epoch: row.Epoch, lastTimestamp: max(row.LastTimestamp, now.UnixMilli()), batches: row.Batches, stored: true}
	}
	return t
}

// expireProducers forgets producers that were idle for too long, and the idlest of too many. One with batches that are not packed stays.
//
// It excludes packing, so that a producer that comes back meanwhile is written after its old row was removed, not before.
func (s *Stream) expireProducers(ctx context.Context, now time.Time) error {
	if !s.hasProducers() {
		return nil
	}
	if !s.engine.packMu.TryLock() {
		return nil // in the next round
	}
	defer s.engine.packMu.Unlock()
	if !s.engine.commitMu.TryLock() {
		return nil
	}
	defer s.engine.commitMu.Unlock()
	expired := s.takeExpired(now)
	var stored []int64
	for id, p := range expired {
		if p.stored {
			stored = append(stored, id)
		}
	}
	const batch = 1000
	for len(stored) > 0 {
		n := min(len(stored), batch)
		if err := s.engine.layer.ForgetProducers(ctx, s.engine.node, s.id, s.epoch, stored[:n]); err != nil {
			s.giveBack(expired, stored)
			if errors.Is(err, layer.ErrStaleStream) || errors.Is(err, layer.ErrStreamNotFound) {
				return nil // closed in the meantime
			}
			return fmt.Errorf("forget %d producers of %v: %w", len(stored), s, err)
		}
		stored = stored[n:]
	}
	return nil
}

func (s *Stream) hasProducers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.producers) > 0
}

// takeExpired takes the producers to be forgotten out of the table.
func (s *Stream) takeExpired(now time.Time) map[int64]*producer {
	o := s.engine.options
	s.mu.Lock()
	defer s.mu.Unlock()
	expired := make(map[int64]*producer)
	var idle []int64 // could be forgotten
	for id, p := range s.producers {
		if p.committed != nil || p.last().Last >= s.packed {
			continue
		}
		expiry := o.ProducerExpiry
		if id < 0 {
			expiry = o.HTTPProducerExpiry
		}
		if p.lastTimestamp < now.Add(-expiry).UnixMilli() {
			expired[id] = p
			delete(s.producers, id)
		} else {
			idle = append(idle, id)
		}
	}
	if excess := len(s.producers) - o.MaxProducers; excess > 0 {
		sort.Slice(idle, func(i, j int) bool { return s.producers[idle[i]].lastTimestamp < s.producers[idle[j]].lastTimestamp })
		for _, id := range idle[:min(excess, len(idle))] {
			expired[id] = s.producers[id]
			delete(s.producers, id)
		}
	}
	return expired
}

// giveBack puts producers back whose rows could not be removed, unless they have come back.
func (s *Stream) giveBack(expired map[int64]*producer, ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.producers != nil && s.producers[id] == nil {
			s.producers[id] = expired[id]
		}
	}
}
