package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"muster/internal/disk"

	"golang.org/x/sys/unix"
)

// A staging is a directory that is filled under a name that nobody gave, and then gets
// its own by one rename: all of it appears, or nothing. What a killed process has left,
// private keys among it, goes when the directory is made once more.
type staging struct {
	dir   string   // where it is filled
	final string   // its own name
	held  *os.File // its lock, which says that it is not one that was left; nil where nothing can be locked
}

// newStaging makes a directory beside final that only its owner can look into. End it
// with remove, whatever happens.
func newStaging(final string) (*staging, error) {
	parent, prefix := filepath.Dir(final), "."+filepath.Base(final)+".new-"
	sweep(parent, prefix)
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, notMade(final, "", err)
	}
	s := &staging{dir: dir, final: final}
	// Who sweeps at this moment may be faster: then what is filled is gone, and that is an error.
	s.held, _ = lockDir(dir)
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory, whatever the umask
		s.remove()
		return nil, notMade(final, dir, err)
	}
	return s, nil
}

// sweep takes away what processes that were killed have left. It is no matter if it
// cannot: what is in the way of nobody may be somebody else's.
func sweep(parent, prefix string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		number, found := strings.CutPrefix(e.Name(), prefix)
		if !found || !e.IsDir() || strings.Trim(number, "0123456789") != "" {
			continue
		}
		path := filepath.Join(parent, e.Name())
		if held, err := lockDir(path); err == nil {
			_ = os.RemoveAll(path)
			_ = held.Close()
		}
	}
}

// lockDir locks a directory that nobody has locked, until what it returns is closed or
// the process is over. Some network file systems cannot.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// place gives the directory its name and these permissions, and brings both to the disk.
// There must be nothing of that name.
func (s *staging) place(mode fs.FileMode) error {
	if err := os.Chmod(s.dir, mode); err != nil {
		return s.notMade(err)
	}
	err := filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = disk.SyncDir(path)
		}
		return err
	})
	if err != nil {
		return s.notMade(err)
	}
	// Not onto anything: an empty directory would give way to a rename.
	if _, err := os.Lstat(s.final); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", s.final, fs.ErrExist)
	}
	return errors.Join(os.Rename(s.dir, s.final), disk.SyncDir(filepath.Dir(s.final)))
}

// remove takes away what has not got its name.
func (s *staging) remove() {
	_ = os.RemoveAll(s.dir) // the next one would, too
	if s.held != nil {
		_ = s.held.Close() // nothing was written
	}
}

// notMade is what keeps the directory from being made.
func (s *staging) notMade(err error) error { return notMade(s.final, s.dir, err) }

// notMade says that dir could not be made because of err, if that is about a file below staging:
// it has a name that nobody gave, and is gone.
func notMade(dir, staging string, err error) error {
	e := (*fs.PathError)(nil)
	if !errors.As(err, &e) || !strings.HasPrefix(e.Path, staging) {
		return err
	}
	if errors.Is(e.Err, fs.ErrPermission) {
		return fmt.Errorf("%s: cannot be made (%w): run this as somebody who may, such as root, or give another directory", dir, e.Err)
	}
	return fmt.Errorf("%s: cannot be made: %w", dir, e.Err)
}
