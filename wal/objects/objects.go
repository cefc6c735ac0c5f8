// Package objects is the object store: an S3-compatible bucket or a local directory behind one contract.
package objects

import (
	"context"
	"errors"
	"time"
)

// Failures that callers branch on. Every other error of a Store is one that it retried as far as the context and its own bounds
// allowed; a caller may try again later.
var (
	// ErrNotFound: there is no object of that key.
	ErrNotFound = errors.New("object not found")
	// ErrExists: PutIfAbsent was refused because the key has an object. A put that timed out and had succeeded is refused too when it is
	// tried again, so a caller that gets it reads the object back.
	ErrExists = errors.New("object exists")
	// ErrRange: the range asked for lies beyond the end of the object.
	ErrRange = errors.New("range beyond the end of the object")
	// ErrDenied: the store refused the credentials or the permission.
	ErrDenied = errors.New("object store denied access")
	// ErrKey: the key or the prefix is not one that a Store takes, or the key is a folder of another key.
	ErrKey = errors.New("bad object key")
	// ErrNoBucket: the bucket or the directory of the store does not exist.
	ErrNoBucket = errors.New("no such bucket")
	// ErrUnsupported: the store does not know conditional writes (it answered 501 NotImplemented or the like).
	ErrUnsupported = errors.New("object store does not support the operation")
)

// Info describes one object.
type Info struct {
	Key      string
	Size     int64 // bytes
	Modified time.Time
}

// Store keeps objects. Keys are at most 512 bytes of [A-Za-z0-9._/-], in parts of at most 255 bytes between slashes, with no empty, "."
// or ".." part (ValidateKey). No key is a folder of another ("a" beside "a/b"): stores that keep files refuse the second with ErrKey,
// others may take it. Bodies are whole: an object is never seen in part. A write that was answered without error is durable, and seen by
// every later read and list. A store keeps no body after it returned, and gives bodies that the caller may change. All methods may be
// called by any number of goroutines at once; none after Close.
type Store interface {
	// Put writes an object, over one that is there.
	Put(ctx context.Context, key string, body []byte) error
	// PutIfAbsent writes an object only if the key has none: ErrExists.
	PutIfAbsent(ctx context.Context, key string, body []byte) error
	// Get reads length bytes from offset. It returns all of them or an error: ErrNotFound, ErrRange. A length of 0 reads nothing, and is
	// ErrRange only beyond the end; a negative offset or length is ErrRange.
	Get(ctx context.Context, key string, offset, length int64) ([]byte, error)
	// GetAll reads a whole object of at most limit bytes; a larger one is ErrRange.
	GetAll(ctx context.Context, key string, limit int64) ([]byte, error)
	// GetTail reads the last length bytes, or all of a smaller object, and tells the size of the object.
	GetTail(ctx context.Context, key string, length int64) (tail []byte, size int64, err error)
	// Head describes an object: ErrNotFound.
	Head(ctx context.Context, key string) (Info, error)
	// Delete removes objects. One that is absent counts as removed. After an error some may be gone and others not.
	Delete(ctx context.Context, keys ...string) error
	// List gives up to limit objects whose keys begin with prefix and sort after startAfter, in byte order of keys. Fewer than limit means
	// that there are no more. A prefix is the beginning of a key, of any length and not always whole parts; startAfter need not exist.
	// What in the store is not a valid key is left out.
	List(ctx context.Context, prefix, startAfter string, limit int) ([]Info, error)
	// String is the store's URL, without secrets.
	String() string
	Close() error
}
