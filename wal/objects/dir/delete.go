package dir

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/varvedb/varve/wal/objects"
)

// Delete implements objects.Store. Folders that become empty go too.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := objects.ValidateKey(key); err != nil {
			return err
		}
	}
	touched := map[string]bool{} // folders that lost an object
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return s.fail("delete", key, err)
		}
		removed, err := s.unlink(key)
		if err != nil {
			return s.fail("delete", key, err)
		}
		if removed {
			touched[parent(key)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(touched)) {
		if err := flushFolder(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s.fail("delete from", name, err)
		}
	}
	for name := range touched {
		s.prune(name)
	}
	return nil
}

func (s *Store) unlink(key string) (bool, error) {
	err := syscall.Unlink(s.path(key)) // os.Remove would remove an empty folder too
	if err == nil {
		return true, nil
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	if info, statErr := os.Lstat(s.path(key)); statErr == nil && info.IsDir() {
		return false, nil // systems differ in what they call this
	}
	return false, &fs.PathError{Op: "unlink", Path: s.path(key), Err: err}
}

// prune removes a folder and those above it that are empty. Whoever is about to write there makes it again; one that cannot be removed does
// no harm.
func (s *Store) prune(name string) {
	for ; name != ""; name = parent(name) {
		if err := syscall.Rmdir(s.path(name)); err != nil {
			return
		}
		s.folders.forgetName(name)
	}
}
