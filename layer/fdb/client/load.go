//go:build fdb

package client

// #cgo LDFLAGS: -lfdb_c
// #cgo linux LDFLAGS: -ldl -lpthread
// #include <foundationdb/fdb_c.h>
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// messageSize bounds the text that comes with a failed load, bytes.
const messageSize = 1024

// Load opens the client library at path, or libfdb_c by the dynamic linker's search where path is empty, and finds its
// functions. It must succeed before any other use of the binding. Loading the same path again does nothing; a failed
// load may be tried again. Errors are ErrMissing, ErrTooOld, ErrIncomplete and ErrOtherPath with the details.
func Load(path string) error {
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	buffer := (*C.char)(C.malloc(messageSize))
	defer C.free(unsafe.Pointer(buffer))

	code := C.varve_fdb_load(cPath, buffer, messageSize)
	return loadError(int(code), path, C.GoString(buffer))
}

func loadError(code int, path, message string) error {
	named := path
	if named == "" {
		named = "libfdb_c of the system"
	}
	switch code {
	case C.VARVE_FDB_OK:
		return nil
	case C.VARVE_FDB_MISSING:
		return fmt.Errorf("%w: install foundationdb-clients 7.3 or newer, or name the library by --fdb-library: %s", ErrMissing, message)
	case C.VARVE_FDB_TOO_OLD:
		return fmt.Errorf("%w: %s supports API version %s, and %d is needed: install foundationdb-clients 7.3 or newer",
			ErrTooOld, named, message, APIVersion)
	case C.VARVE_FDB_INCOMPLETE:
		return fmt.Errorf("%w: %s has no function %s", ErrIncomplete, named, message)
	case C.VARVE_FDB_OTHER_PATH:
		return fmt.Errorf("%w: %q, and %q is asked for", ErrOtherPath, message, path)
	}
	return fmt.Errorf("loading %s: unknown code %d: %s", named, code, message)
}

// Version is the release of the loaded library, "7.3.63" say, empty before Load.
func Version() string {
	release, _, _ := strings.Cut(C.GoString(C.fdb_get_client_version()), ",") // release,source version,protocol
	return release
}
