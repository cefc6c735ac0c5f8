package objectstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varvedb/varve/wal/objects"
)

// Fake is an objects.Store in memory, stricter than real ones: it refuses keys that some real store refuses, does nothing
// on an ended context or after Close, and notices a body that is changed while it is being put. Without faults it keeps the contract; faults, outages,
// hooks and damage are set at any time, by any goroutine.
//
//	store := objectstest.NewFake()
//	store.SetFaults(objectstest.Faults{Seed: seed, All: objectstest.Rates{ErrAfter: 0.1, Delay: time.Millisecond}})
//	store.Before(func(ctx context.Context, op, key string) error { ... })
type Fake struct {
	faults faults

	mu       sync.Mutex // guards what follows
	objects  map[string]object
	keys     []string // of objects, sorted
	mode     PutIfAbsentMode
	window   time.Duration // between check and write in mode Racy
	closed   bool
	counters map[string]Counter
	late     []lateWrite
}

type object struct {
	body     []byte
	modified time.Time
}

// PutIfAbsentMode is how far a Fake's conditional writes can be trusted.
type PutIfAbsentMode int

const (
	// Atomic: of racing writers exactly one wins.
	Atomic PutIfAbsentMode = iota
	// Racy: the check comes some time before the write, so that two racing writers can both win, and the last one's body stays.
	Racy
	// Ignored: the condition is not looked at; every writer wins.
	Ignored
	// Unsupported: conditional writes fail with objects.ErrUnsupported.
	Unsupported
)

// Counter counts the calls of one operation.
type Counter struct {
	Calls  int64
	Errors int64 // calls that returned an error
	Bytes  int64 // of bodies written or read
}

// ErrClosed: an operation on a Fake that was closed.
var ErrClosed = errors.New("fake object store: used after Close")

// NewFake is an empty store without faults.
func NewFake() *Fake {
	f := &Fake{objects: map[string]object{}, window: 2 * time.Millisecond, counters: map[string]Counter{}}
	f.faults.set(Faults{})
	return f
}

func (f *Fake) String() string { return "fake://" }

// Close makes every later operation fail with ErrClosed. Writes that have not landed are dropped.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.late = nil
	return nil
}

// SetPutIfAbsent sets how conditional writes behave from now on.
func (f *Fake) SetPutIfAbsent(mode PutIfAbsentMode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode = mode
}

// SetRaceWindow sets the time between check and write in mode Racy; 2 ms at first.
func (f *Fake) SetRaceWindow(window time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window = window
}

// Put implements objects.Store.
func (f *Fake) Put(ctx context.Context, key string, body []byte) error {
	_, err := f.run(ctx, objects.OpPut, key, func() ([]byte, error) { return nil, f.put(key, body) }, body)
	return err
}

// PutIfAbsent implements objects.Store, as far as the mode lets it.
func (f *Fake) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	effect := func() ([]byte, error) { return nil, f.putIfAbsent(key, body) }
	_, err := f.run(ctx, objects.OpPutIfAbsent, key, effect, body)
	return err
}

// Get implements objects.Store.
func (f *Fake) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	return f.run(ctx, objects.OpGet, key, func() ([]byte, error) { return f.get(key, offset, length) }, nil)
}

// GetAll implements objects.Store.
func (f *Fake) GetAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	return f.run(ctx, objects.OpGetAll, key, func() ([]byte, error) { return f.getAll(key, limit) }, nil)
}

// GetTail implements objects.Store.
func (f *Fake) GetTail(ctx context.Context, key string, length int64) ([]byte, int64, error) {
	var size int64
	tail, err := f.run(ctx, objects.OpGetTail, key, func() ([]byte, error) {
		body, whole, err := f.getTail(key, length)
		size = whole
		return body, err
	}, nil)
	if err != nil {
		return nil, 0, err
	}
	return tail, size, nil
}

// Head implements objects.Store.
func (f *Fake) Head(ctx context.Context, key string) (objects.Info, error) {
	var info objects.Info
	_, err := f.run(ctx, objects.OpHead, key, func() ([]byte, error) {
		found, err := f.find(key)
		info = objects.Info{Key: key, Size: int64(len(found.body)), Modified: found.modified}
		return nil, err
	}, nil)
	if err != nil {
		return objects.Info{}, err
	}
	return info, nil
}

// Delete implements objects.Store. Hooks and faults see each key as a call of its own.
func (f *Fake) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		_, err := f.run(ctx, objects.OpDelete, key, func() ([]byte, error) { return nil, f.remove(key) }, nil)
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// List implements objects.Store. Hooks and faults see the prefix as the key.
func (f *Fake) List(ctx context.Context, prefix, startAfter string, limit int) ([]objects.Info, error) {
	var infos []objects.Info
	_, err := f.run(ctx, objects.OpList, prefix, func() ([]byte, error) {
		infos = f.list(prefix, startAfter, limit)
		return nil, nil
	}, nil)
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// run is an operation with what may go wrong around it. effect is called without the lock.
func (f *Fake) run(ctx context.Context, op, key string, effect func() ([]byte, error), body []byte) ([]byte, error) {
	got, err := f.attempt(ctx, op, key, effect, body)
	if err != nil {
		err = fmt.Errorf("fake object store: %s %q: %w", op, key, err)
	}
	f.count(op, len(body)+len(got), err)
	return got, err
}

func (f *Fake) attempt(ctx context.Context, op, key string, effect func() ([]byte, error), body []byte) ([]byte, error) {
	validate := objects.ValidateKey
	if op == objects.OpList {
		validate = objects.ValidatePrefix
	}
	if err := validate(key); err != nil {
		return nil, err
	}
	if err := f.usable(ctx); err != nil {
		return nil, err
	}
	before := bytes.Clone(body)
	faulty := f.faults.next(op)
	if err := f.faults.before(ctx, op, key, faulty); err != nil {
		if faulty.late {
			f.landLater(lateWrite{op: op, key: key, body: before})
		}
		return nil, err
	}
	if !bytes.Equal(before, body) {
		return nil, errors.New("the body was changed while it was being put")
	}
	if err := f.usable(ctx); err != nil {
		return nil, err
	}
	got, err := effect()
	if afterErr := f.faults.after(ctx, op, key, faulty); afterErr != nil {
		return nil, afterErr
	}
	if err != nil {
		return nil, err
	}
	return faulty.damage(got), nil
}

func (f *Fake) usable(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	return ctx.Err()
}

func (f *Fake) count(op string, size int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counters[op]
	c.Calls++
	if err != nil {
		c.Errors++
	} else {
		c.Bytes += int64(size)
	}
	f.counters[op] = c
}

func (f *Fake) put(key string, body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.storeLocked(key, body)
}

func (f *Fake) storeLocked(key string, body []byte) error {
	at, present := slices.BinarySearch(f.keys, key)
	if !present {
		if err := f.checkFoldersLocked(key); err != nil {
			return err
		}
		f.keys = slices.Insert(f.keys, at, key)
	}
	f.objects[key] = object{body: bytes.Clone(body), modified: time.Now()}
	return nil
}

// checkFoldersLocked refuses a key that would be a folder of another or lie in an object, as stores that keep files do.
func (f *Fake) checkFoldersLocked(key string) error {
	at, _ := slices.BinarySearch(f.keys, key+"/")
	if at < len(f.keys) && strings.HasPrefix(f.keys[at], key+"/") {
		return fmt.Errorf("%w: %q is a folder of %q", objects.ErrKey, key, f.keys[at])
	}
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		if _, present := f.objects[key[:i]]; present {
			return fmt.Errorf("%w: %q lies in the object %q", objects.ErrKey, key, key[:i])
		}
	}
	return nil
}

func (f *Fake) putIfAbsent(key string, body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mode == Unsupported {
		return objects.ErrUnsupported
	}
	if f.mode == Ignored {
		return f.storeLocked(key, body)
	}
	if _, present := f.objects[key]; present {
		return objects.ErrExists
	}
	if f.mode == Racy {
		window := f.window
		f.mu.Unlock()
		time.Sleep(window) // the fault itself, not a wait of a test
		f.mu.Lock()
	}
	return f.storeLocked(key, body)
}

func (f *Fake) find(key string) (object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, present := f.objects[key]
	if !present {
		return object{}, objects.ErrNotFound
	}
	return found, nil
}

func (f *Fake) get(key string, offset, length int64) ([]byte, error) {
	found, err := f.find(key)
	if err != nil {
		return nil, err
	}
	size := int64(len(found.body))
	if offset < 0 || length < 0 || offset > size || length > size-offset {
		return nil, fmt.Errorf("%w: %d bytes from %d of %d", objects.ErrRange, length, offset, size)
	}
	return bytes.Clone(found.body[offset : offset+length]), nil
}

func (f *Fake) getAll(key string, limit int64) ([]byte, error) {
	found, err := f.find(key)
	if err != nil {
		return nil, err
	}
	if size := int64(len(found.body)); size > limit {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", objects.ErrRange, size, limit)
	}
	return bytes.Clone(found.body), nil
}

func (f *Fake) getTail(key string, length int64) ([]byte, int64, error) {
	found, err := f.find(key)
	if err != nil {
		return nil, 0, err
	}
	if length < 0 {
		return nil, 0, fmt.Errorf("%w: a tail of %d bytes", objects.ErrRange, length)
	}
	size := int64(len(found.body))
	return bytes.Clone(found.body[size-min(size, length):]), size, nil
}

func (f *Fake) remove(key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, present := slices.BinarySearch(f.keys, key); present {
		f.keys = slices.Delete(f.keys, at, at+1)
		delete(f.objects, key)
	}
	return nil
}

func (f *Fake) list(prefix, startAfter string, limit int) []objects.Info {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, _ := slices.BinarySearch(f.keys, max(prefix, startAfter))
	var infos []objects.Info
	for _, key := range f.keys[at:] {
		if len(infos) >= limit || !strings.HasPrefix(key, prefix) {
			break
		}
		if key > startAfter {
			found := f.objects[key]
			infos = append(infos, objects.Info{Key: key, Size: int64(len(found.body)), Modified: found.modified})
		}
	}
	return infos
}
