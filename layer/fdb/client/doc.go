// Package client loads FoundationDB's client library at run time.
//
// Apple's Go binding is linked against libfdb_c. Ours is linked against a small static libfdb_c.a instead (folder shim),
// which forwards every call to the libfdb_c.so that Load opened. A binary that has FoundationDB support therefore starts
// on a machine without FoundationDB, and says what to install when it is asked to use it.
package client

import "errors"

// APIVersion is the version of the C API that the engine speaks, and the least that a library must support.
const APIVersion = 730

// Kinds of failure of Load.
var (
	// ErrMissing: there is no client library at the path, or none in the dynamic linker's search path.
	ErrMissing = errors.New("FoundationDB client library missing")
	// ErrTooOld: the library does not support APIVersion.
	ErrTooOld = errors.New("FoundationDB client library too old")
	// ErrIncomplete: the library lacks a function of the C API; it is not a libfdb_c, or a damaged one.
	ErrIncomplete = errors.New("FoundationDB client library incomplete")
	// ErrOtherPath: a process can load one library, and it has loaded another.
	ErrOtherPath = errors.New("another FoundationDB client library is loaded")
)
