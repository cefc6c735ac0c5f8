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
	// ErrUnsupported: the store does not know conditional writes (it answered 501 NotImplemented or the like).
	ErrUnsupported = errors.New("object store does not support the operation")
)

// Info describes one object.
type Info struct {
	Key      string
	Size     int64 // bytes
	Modified time.Time
}

// Store keeps objects. Keys are at most 512 bytes of [A-Za-z0-9._/-], with no empty, "." or ".." part. Bodies are whole: an object is
// never seen in part. A write that was answered without error is durable, and seen by every later read and list.
type Store interface {
	// Put writes an object, over one that is there.
	Put(ctx context.Context, key string, body []byte) error
	// PutIfAbsent writes an object only if the key has none: ErrExists.
	PutIfAbsent(ctx context.Context, key string, body []byte) error
	// Get reads length bytes from offset. It returns all of them or an error: ErrNotFound, ErrRange.
	Get(ctx context.Context, key string, offset, length int64) ([]byte, error)
	// GetAll reads a whole object of at most limit bytes; a larger one is ErrRange.
	GetAll(ctx context.Context, key string, limit int64) ([]byte, error)
	// GetTail reads the last length bytes, or all of a smaller object, and tells the size of the object.
	GetTail(ctx context.Context, key string, length int64) (tail []byte, size int64, err error)
	// Head describes an object: ErrNotFound.
	Head(ctx context.Context, key string) (Info, error)
	// Delete removes objects. One that is absent counts as removed.
	Delete(ctx context.Context, keys ...string) error
	// List gives up to limit objects whose keys begin with prefix and sort after startAfter, in byte order of keys.
	List(ctx context.Context, prefix, startAfter string, limit int) ([]Info, error)
	// String is the store's URL, without secrets.
	String() string
	Close() error
}
