package objectstest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varvedb/varve/wal/objects"
)

// Errors that faults give. None is a sentinel of objects: to a caller they are "try again later".
var (
	ErrInjected = errors.New("injected fault: refused before any effect")
	ErrTimedOut = errors.New("injected fault: timed out, outcome unknown")
	ErrSlowDown = errors.New("injected fault: 503 SlowDown")
	ErrOutage   = errors.New("injected fault: the store cannot be reached")
)

// Rates are the faults of an operation. The chances are between 0 and 1 and independent; the first that hits in the order below decides.
type Rates struct {
	Delay       time.Duration // every call waits a random time up to this first, or until its context ends
	Every2nd    bool          // every second call of the operation fails with ErrSlowDown, without effect
	Stall       float64       // the call hangs until its context ends, without effect
	Err         float64       // ErrInjected, without effect
	Late        float64       // ErrTimedOut now; a write or delete takes effect when LandLate is called
	ErrAfter    float64       // ErrTimedOut after the effect: timed out and succeeded
	ShortRead   float64       // a read gives fewer bytes than it should, and no error
	CorruptRead float64       // a read gives one wrong byte, and no error
}

// Faults are the rates of all operations. The same seed and the same order of calls give the same faults.
type Faults struct {
	Seed int64
	All  Rates            // of each operation that Ops does not name
	Ops  map[string]Rates // by operation: objects.OpPut and the others
}

// Hook is called with each operation; an error becomes the operation's. It may block, and should then watch ctx.
type Hook func(ctx context.Context, op, key string) error

// SetFaults replaces all rates and begins the random numbers and the count of Every2nd anew. Hooks and outage stay.
func (f *Fake) SetFaults(faults Faults) { f.faults.set(faults) }

// SetOutage makes every operation fail with ErrOutage, without effect, until it is set to false.
func (f *Fake) SetOutage(out bool) {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	f.faults.outage = out
}

// Before sets the hook that is called before an operation has an effect; nil removes it.
func (f *Fake) Before(hook Hook) {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	f.faults.hookBefore = hook
}

// After sets the hook that is called after an operation had its effect: its error is that of a call that succeeded and was not told so.
func (f *Fake) After(hook Hook) {
	f.faults.mu.Lock()
	defer f.faults.mu.Unlock()
	f.faults.hookAfter = hook
}

type faults struct {
	mu         sync.Mutex // guards all
	config     Faults
	random     *rand.Rand
	calls      map[string]int
	outage     bool
	hookBefore Hook
	hookAfter  Hook
}

func (s *faults) set(config Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
	s.random = rand.New(rand.NewPCG(uint64(config.Seed), 0x5eed)) //nolint:gosec // replayable on purpose
	s.calls = map[string]int{}
}

// fate is what is decided for one call before it begins.
type fate struct {
	delay         time.Duration
	stall         bool
	err           error
	late          bool
	errAfter      bool
	short, corrup bool
	where         float64 // in 0..1: which byte of a read is damaged
}

func (s *faults) next(op string) fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	rates, named := s.config.Ops[op]
	if !named {
		rates = s.config.All
	}
	s.calls[op]++
	hit := func(chance float64) bool { return chance > 0 && s.random.Float64() < chance }
	var f fate
	if rates.Delay > 0 {
		f.delay = time.Duration(s.random.Int64N(int64(rates.Delay) + 1))
	}
	writes := op == objects.OpPut || op == objects.OpPutIfAbsent || op == objects.OpDelete
	switch {
	case s.outage:
		f.err = ErrOutage
	case rates.Every2nd && s.calls[op]%2 == 0:
		f.err = ErrSlowDown
	case hit(rates.Stall):
		f.stall = true
	case hit(rates.Err):
		f.err = ErrInjected
	case hit(rates.Late):
		f.err, f.late = ErrTimedOut, writes
	case hit(rates.ErrAfter):
		f.errAfter = true
	case hit(rates.ShortRead):
		f.short, f.where = true, s.random.Float64()
	case hit(rates.CorruptRead):
		f.corrup, f.where = true, s.random.Float64()
	}
	return f
}

func (s *faults) hooks() (before, after Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hookBefore, s.hookAfter
}

func (s *faults) before(ctx context.Context, op, key string, f fate) error {
	if hook, _ := s.hooks(); hook != nil {
		if err := hook(ctx, op, key); err != nil {
			return err
		}
	}
	if f.stall {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.delay > 0 {
		timer := time.NewTimer(f.delay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	return f.err
}

func (s *faults) after(ctx context.Context, op, key string, f fate) error {
	if _, hook := s.hooks(); hook != nil {
		if err := hook(ctx, op, key); err != nil {
			return err
		}
	}
	if f.errAfter {
		return ErrTimedOut
	}
	return nil
}

// damage changes what a read gives; body is the caller's own copy.
func (f fate) damage(body []byte) []byte {
	if len(body) == 0 {
		return body
	}
	at := int(f.where * float64(len(body)))
	if f.short {
		return body[:at]
	}
	if f.corrup {
		body[at] ^= 0xff
	}
	return body
}
