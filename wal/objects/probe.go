package objects

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Conditional is what Probe found out about a store's conditional writes.
type Conditional struct {
	// Atomic: in every race exactly one writer won, its bytes stayed, and the key was refused from then on. It is no proof; a store that
	// is known to check first and write later must not be trusted however often it passes.
	Atomic bool
	// Reason is what was seen when Atomic is false.
	Reason string
}

// cleanupTimeout bounds the removal of what a probe wrote, also when its context has ended.
const cleanupTimeout = 10 * time.Second

// Probe lets writers race for one key, several rounds of it, each with a key of its own below prefix, and removes the keys. An error means that
// the store could not be used, and nothing was found out.
func Probe(ctx context.Context, store Store, prefix string, rounds, writers int) (Conditional, error) {
	for round := range rounds {
		// Odd rounds have larger bodies: a gateway that checks before it has read the body leaves more time for another.
		size := 1 << 10
		if round%2 == 1 {
			size = 128 << 10
		}
		p := probe{store: store, key: fmt.Sprintf("%s/probe-%s", prefix, rand.Text()), bodies: probeBodies(writers, size)}
		reason, err := p.run(ctx)
		if err != nil {
			return Conditional{}, fmt.Errorf("probe conditional writes of %s: %w", store, err)
		}
		if reason != "" {
			return Conditional{Reason: reason}, nil
		}
	}
	return Conditional{Atomic: true}, nil
}

// probeBodies are different in every byte, so that a mixture would show too.
func probeBodies(writers, size int) [][]byte {
	bodies := make([][]byte, writers)
	for i := range bodies {
		bodies[i] = bytes.Repeat([]byte{byte(i)}, size+i)
	}
	return bodies
}

// probe is one round.
type probe struct {
	store  Store
	key    string
	bodies [][]byte // one for each writer
}

// run says what is wrong with the store, "" for nothing.
func (p *probe) run(ctx context.Context) (reason string, err error) {
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if deleteErr := p.store.Delete(cleanup, p.key); deleteErr != nil && err == nil {
			err = fmt.Errorf("clean up: %w", deleteErr)
		}
	}()
	winners, err := p.race(ctx)
	switch {
	case errors.Is(err, ErrUnsupported):
		return err.Error(), nil
	case err != nil:
		return "", err
	case len(winners) > 1:
		return fmt.Sprintf("%d of %d racing writers were told that they had created the same object", len(winners), len(p.bodies)), nil
	}
	if reason, err := p.readBack(ctx, winners); reason != "" || err != nil {
		return reason, err
	}
	err = p.store.PutIfAbsent(ctx, p.key, []byte("late"))
	if err == nil {
		return "a conditional write to an object that was there was not refused", nil
	}
	if !errors.Is(err, ErrExists) {
		return "", err
	}
	return p.readBack(ctx, winners)
}

// race gives the writers that were told they had won. None at all may be: the winner's request was sent again and refused.
func (p *probe) race(ctx context.Context) ([]int, error) {
	errs := make([]error, len(p.bodies))
	start := make(chan struct{})
	var group sync.WaitGroup
	for i, body := range p.bodies {
		group.Go(func() {
			<-start
			errs[i] = p.store.PutIfAbsent(ctx, p.key, body)
		})
	}
	close(start)
	group.Wait()
	var winners []int
	for i, err := range errs {
		if err == nil {
			winners = append(winners, i)
		} else if !errors.Is(err, ErrExists) {
			return nil, err
		}
	}
	return winners, nil
}

// readBack compares the object with the winner's body, or finds it among all.
func (p *probe) readBack(ctx context.Context, winners []int) (string, error) {
	body, err := p.store.GetAll(ctx, p.key, int64(2*len(p.bodies[0])+len(p.bodies)))
	if errors.Is(err, ErrNotFound) {
		return "an object that was created conditionally was not there afterwards", nil
	}
	if err != nil {
		return "", err
	}
	if len(winners) == 1 {
		if !bytes.Equal(body, p.bodies[winners[0]]) {
			return "an object did not have the bytes of the one writer that had created it", nil
		}
		return "", nil
	}
	for _, candidate := range p.bodies {
		if bytes.Equal(body, candidate) {
			return "", nil
		}
	}
	return "an object had the bytes of none of its writers", nil
}
