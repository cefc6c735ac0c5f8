package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/varvedb/varve/wal/objects"
)

// readChunk is what is read between two looks at the context.
const readChunk = 4 << 20

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	body, _, err := s.read(ctx, key, func(size int64) (int64, int64, error) {
		if offset < 0 || length < 0 || offset > size || length > size-offset {
			return 0, 0, fmt.Errorf("%w: %d bytes from %d of %d", objects.ErrRange, length, offset, size)
		}
		return offset, length, nil
	})
	if err != nil {
		return nil, s.fail("get", key, err)
	}
	return body, nil
}

// GetAll implements objects.Store.
func (s *Store) GetAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	body, _, err := s.read(ctx, key, func(size int64) (int64, int64, error) {
		if size > limit {
			return 0, 0, fmt.Errorf("%w: %d bytes, the limit is %d", objects.ErrRange, size, limit)
		}
		return 0, size, nil
	})
	if err != nil {
		return nil, s.fail("get", key, err)
	}
	return body, nil
}

// GetTail implements objects.Store.
func (s *Store) GetTail(ctx context.Context, key string, length int64) ([]byte, int64, error) {
	tail, size, err := s.read(ctx, key, func(size int64) (int64, int64, error) {
		if length < 0 {
			return 0, 0, fmt.Errorf("%w: a tail of %d bytes", objects.ErrRange, length)
		}
		n := min(size, length)
		return size - n, n, nil
	})
	if err != nil {
		return nil, 0, s.fail("get the tail of", key, err)
	}
	return tail, size, nil
}

// Head implements objects.Store.
func (s *Store) Head(ctx context.Context, key string) (objects.Info, error) {
	if err := objects.ValidateKey(key); err != nil {
		return objects.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return objects.Info{}, s.fail("head", key, err)
	}
	info, err := os.Lstat(s.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return objects.Info{}, s.fail("head", key, absent(err))
	}
	return objects.Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

// read reads the part of an object that pick chooses by its size. An object that is replaced meanwhile is read as it was.
func (s *Store) read(ctx context.Context, key string, pick func(size int64) (offset, length int64, err error)) (body []byte, size int64, err error) {
	if err := objects.ValidateKey(key); err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	// A link or a pipe is not ours: neither followed nor waited for.
	f, err := os.OpenFile(s.path(key), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, absent(err)
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing can be lost
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, objects.ErrNotFound
	}
	offset, length, err := pick(info.Size())
	if err != nil {
		return nil, 0, err
	}
	body, err = readAt(ctx, f, offset, length)
	return body, info.Size(), err
}

func readAt(ctx context.Context, f *os.File, offset, length int64) ([]byte, error) {
	body := make([]byte, length)
	for done := int64(0); done < length; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := f.ReadAt(body[done:min(length, done+readChunk)], offset+done)
		if errors.Is(err, io.EOF) && n > 0 {
			err = nil
		}
		if err != nil {
			return nil, fmt.Errorf("at %d of %d bytes: %w", offset+done, offset+length, err)
		}
		done += int64(n)
	}
	return body, nil
}

// absent is ErrNotFound for every way in which the file system says it.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return objects.ErrNotFound
	}
	return err
}
