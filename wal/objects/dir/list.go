package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/varvedb/varve/wal/objects"
)

// List implements objects.Store. Only folders that can hold what was asked for are read, each whole.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) ([]objects.Info, error) {
	if err := objects.ValidatePrefix(prefix); err != nil {
		return nil, err
	}
	l := lister{store: s, prefix: prefix, startAfter: startAfter, limit: limit}
	// Every key of the prefix lies below its last slash.
	if err := l.walk(ctx, prefix[:strings.LastIndexByte(prefix, '/')+1]); err != nil {
		return nil, fmt.Errorf("list %q in %s: %w", prefix, s, sentinel(err))
	}
	return l.found, nil
}

type lister struct {
	store              *Store
	prefix, startAfter string
	limit              int
	found              []objects.Info
}

// walk lists a folder. below is "" or ends in a slash.
func (l *lister) walk(ctx context.Context, below string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := readFolder(l.store.path(below))
	if below != "" && (errors.Is(absent(err), objects.ErrNotFound)) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", objects.ErrNoBucket, err)
	}
	if err != nil {
		return err
	}
	for _, e := range l.wanted(below, entries) {
		if len(l.found) >= l.limit {
			return nil
		}
		if e.entry.IsDir() {
			if err := l.walk(ctx, e.key); err != nil {
				return err
			}
		} else if err := l.add(e); err != nil {
			return err
		}
	}
	return nil
}

// readFolder reads all entries, unsorted.
func readFolder(path string) ([]fs.DirEntry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing can be lost
	return f.ReadDir(-1)
}

// listed is an entry with its key; that of a folder ends in a slash, which is where it sorts.
type listed struct {
	key   string
	entry fs.DirEntry
}

// wanted keeps the entries that may hold what was asked for, in byte order of keys.
func (l *lister) wanted(below string, entries []fs.DirEntry) []listed {
	kept := make([]listed, 0, len(entries))
	for _, entry := range entries {
		if objects.ValidateKey(entry.Name()) != nil {
			continue // +tmp, or not ours
		}
		e := listed{key: below + entry.Name(), entry: entry}
		switch {
		case entry.IsDir():
			e.key += "/"
			if !overlap(e.key, l.prefix) || e.key < l.startAfter && !strings.HasPrefix(l.startAfter, e.key) {
				continue
			}
		case !entry.Type().IsRegular(), !strings.HasPrefix(e.key, l.prefix), e.key <= l.startAfter:
			continue
		}
		kept = append(kept, e)
	}
	slices.SortFunc(kept, func(a, b listed) int { return cmp.Compare(a.key, b.key) })
	return kept
}

// overlap: some key may begin with both.
func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

func (l *lister) add(e listed) error {
	info, err := e.entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	if objects.ValidateKey(e.key) == nil {
		l.found = append(l.found, objects.Info{Key: e.key, Size: info.Size(), Modified: info.ModTime()})
	}
	return nil
}
