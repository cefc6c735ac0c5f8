package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/varvedb/varve/wal/objects"
)

const (
	// writeChunk is what is written between two looks at the context.
	writeChunk = 4 << 20
	// placeAttempts bounds how often a write starts again because its folder was removed meanwhile by one who found it empty.
	placeAttempts = 100
)

// errLostRace: the folder, or the temporary file, was removed between two steps of a write.
var errLostRace = errors.New("the folder was removed meanwhile")

// Put implements objects.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	return s.write(ctx, "put", key, body, s.rename)
}

// PutIfAbsent implements objects.Store. It is atomic between processes.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	if s.refuseEarly(ctx, key) {
		return s.fail("put if absent", key, objects.ErrExists)
	}
	return s.write(ctx, "put if absent", key, body, s.link)
}

// refuseEarly saves writing a body that would be refused. false decides nothing.
func (s *Store) refuseEarly(ctx context.Context, key string) bool {
	if objects.ValidateKey(key) != nil || ctx.Err() != nil {
		return false
	}
	if info, err := os.Lstat(s.path(key)); err != nil || !info.Mode().IsRegular() {
		return false
	}
	to, err := s.acquire(parent(key))
	if err != nil {
		return false
	}
	defer s.folders.release(to)
	return to.Sync() == nil
}

// place gives the temporary file its name in a folder. errLostRace: try again.
type place func(temp string, to *folder, name string) error

func (s *Store) write(ctx context.Context, op, key string, body []byte, place place) error {
	if err := objects.ValidateKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return s.fail(op, key, err)
	}
	var err error
	for range placeAttempts {
		if err = s.writeOnce(ctx, key, body, place); !errors.Is(err, errLostRace) {
			break
		}
	}
	if err != nil {
		return s.fail(op, key, err)
	}
	return nil
}

func (s *Store) writeOnce(ctx context.Context, key string, body []byte, place place) error {
	to, err := s.acquire(parent(key))
	if err != nil {
		return err
	}
	defer s.folders.release(to)
	temp, err := s.writeTemp(ctx, body)
	if err != nil {
		return err
	}
	placeErr := place(temp, to, filepath.Base(key))
	// After a rename there is none; after a link, a failure to remove it leaves a file for the sweep and does the object no harm.
	if err := os.Remove(s.tempPath(temp)); err != nil && placeErr == nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove temporary file: %w", err)
	}
	if errors.Is(placeErr, errLostRace) {
		s.folders.forget(to)
	}
	if placeErr == nil || errors.Is(placeErr, objects.ErrExists) {
		// Also for one who was refused: what he reads back must not be taken away by a crash.
		return errors.Join(placeErr, to.Sync())
	}
	return placeErr
}

func (s *Store) acquire(name string) (*folder, error) {
	to, err := s.folders.acquire(name)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w: it lies in an object: %w", objects.ErrKey, err)
	case errors.Is(err, fs.ErrNotExist):
		if _, statErr := os.Stat(s.root); errors.Is(statErr, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w", objects.ErrNoBucket, statErr)
		}
		return nil, errLostRace
	case err != nil:
		return nil, err
	}
	if info, err := to.Stat(); err != nil || !info.IsDir() {
		s.folders.forget(to)
		s.folders.release(to)
		return nil, errors.Join(fmt.Errorf("%w: it lies in the object %q", objects.ErrKey, name), err)
	}
	return to, nil
}

func (s *Store) link(temp string, to *folder, name string) error {
	err := unix.Linkat(int(s.temp.Fd()), temp, int(to.Fd()), name, 0)
	if errors.Is(err, fs.ErrExist) {
		return s.existing(to, name)
	}
	return lostRace("link", temp, name, err)
}

func (s *Store) rename(temp string, to *folder, name string) error {
	err := unix.Renameat(int(s.temp.Fd()), temp, int(to.Fd()), name)
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, fs.ErrExist) {
		return s.existing(to, name)
	}
	return lostRace("rename", temp, name, err)
}

// existing tells a key that has an object from one that is a folder.
func (s *Store) existing(to *folder, name string) error {
	info, err := os.Lstat(filepath.Join(to.Name(), name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errLostRace
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%w: it is a folder of others", objects.ErrKey)
	}
	return objects.ErrExists
}

func lostRace(op, temp, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return errLostRace
	}
	return &os.LinkError{Op: op, Old: temp, New: name, Err: err}
}

func (s *Store) tempPath(name string) string { return filepath.Join(s.root, tempFolder, name) }

// writeTemp writes a flushed temporary file and gives its name. A failure leaves none.
func (s *Store) writeTemp(ctx context.Context, body []byte) (string, error) {
	name := rand.Text()
	f, err := os.OpenFile(s.tempPath(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %w", objects.ErrNoBucket, err)
	}
	if err != nil {
		return "", err
	}
	err = writeBody(ctx, f, body)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return name, nil
}

func writeBody(ctx context.Context, f *os.File, body []byte) error {
	for done := 0; done < len(body); {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.Write(body[done:min(len(body), done+writeChunk)])
		if err != nil {
			return err
		}
		if n == writeChunk {
			startWriteback(f, int64(done), int64(n))
		}
		done += n
	}
	return nil
}
