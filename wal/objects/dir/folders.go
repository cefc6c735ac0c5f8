package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// maxFolders bounds the folders that are kept open when nobody uses them.
const maxFolders = 256

// folders keeps folders open that are known to be durable: flushed, with every folder above, after we opened them. While one is held open
// its inode is its own, so what we know of it stays true even when another process removes the folder and makes one of the same name:
// then a link into ours fails, and it is opened anew.
type folders struct {
	root string

	mu   sync.Mutex // guards what follows, and refs of each folder
	open map[string]*folder
}

type folder struct {
	*os.File
	name string // relative to the root, "" for the root
	refs int    // users, and one while it is in the map
}

func newFolders(root string) *folders {
	return &folders{root: root, open: map[string]*folder{}}
}

// acquire gives the folder, made and durable. The caller releases it.
func (s *folders) acquire(name string) (*folder, error) {
	if f := s.cached(name); f != nil {
		return f, nil
	}
	f, err := s.make(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evictLocked()
	if old := s.open[name]; old != nil {
		s.dropLocked(old)
	}
	s.open[name] = f
	f.refs = 2
	return f, nil
}

func (s *folders) cached(name string) *folder {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.open[name]
	if f != nil {
		f.refs++
	}
	return f
}

// make makes and opens the folder, then flushes it into the ones above up to the root, whoever made them.
func (s *folders) make(name string) (*folder, error) {
	path := filepath.Join(s.root, filepath.FromSlash(name))
	if err := s.mkdirs(name); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for above := path; above != s.root; {
		above = filepath.Dir(above)
		if err := flushFolder(above); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return &folder{File: file, name: name}, nil
}

// mkdirs makes the folder and those above it, but never the root: a root that vanished is not to be made up.
func (s *folders) mkdirs(name string) error {
	if name == "" {
		return nil
	}
	path := filepath.Join(s.root, filepath.FromSlash(name))
	err := os.Mkdir(path, folderMode)
	if errors.Is(err, fs.ErrNotExist) && strings.Contains(name, "/") {
		if err := s.mkdirs(parent(name)); err != nil {
			return err
		}
		err = os.Mkdir(path, folderMode)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil // if it is no folder, opening what lies in it will tell
	}
	return err
}

// parent is the folder of a key or of a folder, "" for the root.
func parent(name string) string {
	if at := strings.LastIndexByte(name, '/'); at >= 0 {
		return name[:at]
	}
	return ""
}

func (s *folders) release(f *folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unrefLocked(f)
}

// forget closes a folder that was removed, as soon as its users have released it.
func (s *folders) forget(f *folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(f)
}

func (s *folders) forgetName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.open[name]; f != nil {
		s.dropLocked(f)
	}
}

func (s *folders) dropLocked(f *folder) {
	if s.open[f.name] == f {
		delete(s.open, f.name)
		s.unrefLocked(f)
	}
}

func (s *folders) unrefLocked(f *folder) {
	f.refs--
	if f.refs == 0 {
		_ = f.Close() // opened for reading: nothing can be lost
	}
}

// evictLocked makes room by dropping any folder that nobody uses.
func (s *folders) evictLocked() {
	if len(s.open) < maxFolders {
		return
	}
	for _, f := range s.open {
		if f.refs == 1 {
			s.dropLocked(f)
			return
		}
	}
}

func (s *folders) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.open {
		s.dropLocked(f)
	}
	return nil
}
