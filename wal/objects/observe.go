package objects

import (
	"context"
	"time"
)

// The operations of a Store as observers and faults name them.
const (
	OpPut         = "put"
	OpPutIfAbsent = "put_if_absent"
	OpGet         = "get"
	OpGetAll      = "get_all"
	OpGetTail     = "get_tail"
	OpHead        = "head"
	OpDelete      = "delete"
	OpList        = "list"
)

// Ops lists the operations.
func Ops() []string {
	return []string{OpPut, OpPutIfAbsent, OpGet, OpGetAll, OpGetTail, OpHead, OpDelete, OpList}
}

// Observer is told of every operation of a Store when it ends. bytes is the size of the body that was written or read, 0 for others. It is
// called by many goroutines at once and must not block.
type Observer interface {
	Observe(op string, bytes int, d time.Duration, err error)
}

// Observed is the store with an observer. Operations are counted as callers see them: one with its retries inside is one.
func Observed(store Store, observer Observer) Store {
	return &observed{store: store, observer: observer}
}

type observed struct {
	store    Store
	observer Observer
}

// Unwrap gives the store behind the observer.
func (o *observed) Unwrap() Store { return o.store }

func (o *observed) String() string { return o.store.String() }

func (o *observed) Close() error { return o.store.Close() }

func (o *observed) CheckAccess(ctx context.Context) error { return CheckAccess(ctx, o.store) }

func (o *observed) Put(ctx context.Context, key string, body []byte) error {
	start := time.Now()
	err := o.store.Put(ctx, key, body)
	o.observer.Observe(OpPut, len(body), time.Since(start), err)
	return err
}

func (o *observed) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	start := time.Now()
	err := o.store.PutIfAbsent(ctx, key, body)
	o.observer.Observe(OpPutIfAbsent, len(body), time.Since(start), err)
	return err
}

func (o *observed) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	start := time.Now()
	body, err := o.store.Get(ctx, key, offset, length)
	o.observer.Observe(OpGet, len(body), time.Since(start), err)
	return body, err
}

func (o *observed) GetAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	start := time.Now()
	body, err := o.store.GetAll(ctx, key, limit)
	o.observer.Observe(OpGetAll, len(body), time.Since(start), err)
	return body, err
}

func (o *observed) GetTail(ctx context.Context, key string, length int64) ([]byte, int64, error) {
	start := time.Now()
	tail, size, err := o.store.GetTail(ctx, key, length)
	o.observer.Observe(OpGetTail, len(tail), time.Since(start), err)
	return tail, size, err
}

func (o *observed) Head(ctx context.Context, key string) (Info, error) {
	start := time.Now()
	info, err := o.store.Head(ctx, key)
	o.observer.Observe(OpHead, 0, time.Since(start), err)
	return info, err
}

func (o *observed) Delete(ctx context.Context, keys ...string) error {
	start := time.Now()
	err := o.store.Delete(ctx, keys...)
	o.observer.Observe(OpDelete, 0, time.Since(start), err)
	return err
}

func (o *observed) List(ctx context.Context, prefix, startAfter string, limit int) ([]Info, error) {
	start := time.Now()
	infos, err := o.store.List(ctx, prefix, startAfter, limit)
	o.observer.Observe(OpList, 0, time.Since(start), err)
	return infos, err
}
