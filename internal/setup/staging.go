package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"muster/internal/disk"
)

// makeDir makes a directory with all files that fill writes, or nothing.
func makeDir(dir string, mode fs.FileMode, fill func(*writer) error) error {
	staging, err := newStaging(dir)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staging.dir) }() // if this fails, the next run reports the directory
	w := &writer{dir: staging.dir}
	if err := cmp.Or(fill(w), w.err); err != nil {
		return staging.notMade(err)
	}
	return staging.place(mode)
}

// A staging is a directory that is filled under another name, and renamed when complete.
type staging struct {
	dir   string // while it is filled
	final string // afterwards
}

// newStaging makes a private directory beside final.
func newStaging(final string) (*staging, error) {
	s := &staging{dir: filepath.Join(filepath.Dir(final), "."+filepath.Base(final)+".new"), final: final}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return nil, s.notMade(err)
	}
	err := os.Mkdir(s.dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf(
			"%s was left by a killed run, or another run is active: if none is active, remove it", s.dir)
	}
	if err != nil {
		return nil, s.notMade(err)
	}
	if err := os.Chmod(s.dir, 0o700); err != nil { //nolint:gosec // a directory, whatever the umask
		return nil, s.notMade(errors.Join(err, os.Remove(s.dir)))
	}
	return s, nil
}

// place sets the mode, syncs the directory, and renames it to final, which must not exist.
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
	// A rename would replace an empty directory.
	if _, err := os.Lstat(s.final); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w, and is never overwritten: give a new directory", s.final, fs.ErrExist)
	}
	return errors.Join(os.Rename(s.dir, s.final), disk.SyncDir(filepath.Dir(s.final)))
}

// notMade replaces the file's name in an error by the directory's.
func (s *staging) notMade(err error) error {
	e := (*fs.PathError)(nil)
	if !errors.As(err, &e) {
		return err
	}
	if errors.Is(e.Err, fs.ErrPermission) {
		return fmt.Errorf("%s: cannot be made (%w): run this as a user with that permission, such as root, "+
			"or give another directory", s.final, e.Err)
	}
	return fmt.Errorf("%s: cannot be made: %w", s.final, e.Err)
}
