// Package dir keeps objects as files in a directory. Object "a/b/c" is the file a/b/c below the root.
//
// A write is a temporary file in +tmp that is flushed, then linked (only if absent) or renamed (over what is there) to its name, and the
// folder flushed. So an object is there whole or not at all, also after a crash, and conditional writes are atomic between processes too.
// "+" is in no key, so that +tmp meets no object. Several processes of one machine may share a directory; a network file system must
// have atomic link(2) and honest fsync(2).
package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/varvedb/varve/wal/objects"
)

const (
	tempFolder = "+tmp"
	// staleAfter is the age at which a temporary file belongs to nobody: far more than a write takes. A writer that lives longer than its
	// file starts its write again.
	staleAfter = time.Hour

	folderMode = 0o750
	fileMode   = 0o640
)

// Store is an objects.Store of files.
type Store struct {
	root    string // absolute
	temp    *os.File
	folders *folders
}

var _ objects.Store = (*Store)(nil)

// Open opens the directory, making it if need be, and removes temporary files that a crash left.
func Open(path string) (*Store, error) {
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("object store directory %q: %w", path, err)
	}
	s := &Store{root: root, folders: newFolders(root)}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("object store directory %s: %w", root, err)
	}
	return s, nil
}

func (s *Store) prepare() error {
	tempPath := filepath.Join(s.root, tempFolder)
	if err := makeDurable(tempPath); err != nil {
		return err
	}
	temp, err := os.Open(tempPath)
	if err != nil {
		return err
	}
	if err := sweep(temp, time.Now().Add(-staleAfter)); err != nil {
		return errors.Join(err, temp.Close())
	}
	s.temp = temp
	return nil
}

// makeDurable makes a folder and those above it that are missing, each flushed into the one above.
func makeDurable(path string) error {
	err := os.Mkdir(path, folderMode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDurable(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, folderMode)
	}
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", path)
		}
		return err
	}
	if err != nil {
		return err
	}
	return flushFolder(filepath.Dir(path))
}

func flushFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// sweep removes the temporary files that were last written before the given time.
func sweep(temp *os.File, before time.Time) error {
	entries, err := temp.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("sweep temporary files: %w", err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // its writer, or another sweep, was faster
		}
		if err != nil {
			return fmt.Errorf("sweep temporary files: %w", err)
		}
		if !info.Mode().IsRegular() || info.ModTime().After(before) {
			continue
		}
		if err := os.Remove(filepath.Join(temp.Name(), entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep temporary files: %w", err)
		}
	}
	return nil
}

// String is the URL of the directory.
func (s *Store) String() string { return (&url.URL{Scheme: "file", Path: s.root}).String() }

// Close closes the folders that were kept open.
func (s *Store) Close() error {
	return errors.Join(s.folders.close(), s.temp.Close())
}

// CheckAccess shows that files can be written to the directory.
func (s *Store) CheckAccess(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	temp, err := s.writeTemp(ctx, []byte("check"))
	if err == nil {
		err = os.Remove(s.tempPath(temp))
	}
	if err != nil {
		return fmt.Errorf("object store %s cannot be written to: %w", s, sentinel(err))
	}
	return nil
}

func (s *Store) path(key string) string {
	return filepath.Join(s.root, filepath.FromSlash(key))
}

// fail is the error of an operation on a key.
func (s *Store) fail(op, key string, err error) error {
	return fmt.Errorf("%s %q in %s: %w", op, key, s, sentinel(err))
}

// sentinel adds what callers branch on to an error of the file system.
func sentinel(err error) error {
	switch {
	case errors.Is(err, objects.ErrNotFound), errors.Is(err, objects.ErrKey), errors.Is(err, objects.ErrNoBucket):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("the disk is full: %w", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", objects.ErrDenied, err)
	}
	return err
}
