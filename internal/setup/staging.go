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

// makeDir makes a directory with all files that fill writes, or nothing: a private directory beside it is filled, and
// renamed when complete.
func makeDir(final string, mode fs.FileMode, fill func(*writer) error) error {
	dir := filepath.Join(filepath.Dir(final), "."+filepath.Base(final)+".new")
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return notMade(final, err)
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s was left by a killed run, or another run is active: if none is active, remove it", dir)
	}
	if err != nil {
		return notMade(final, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()    // if this fails, the next run reports the directory
	if err = os.Chmod(dir, 0o700); err == nil { //nolint:gosec // a directory, whatever the umask
		w := &writer{dir: dir}
		err = cmp.Or(fill(w), w.err)
	}
	if err == nil {
		err = place(dir, final, mode)
	}
	return notMade(final, err)
}

// place sets the mode of dir, syncs it, and renames it to final, which must not exist.
func place(dir, final string, mode fs.FileMode) error {
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = disk.SyncDir(path)
		}
		return err
	})
	if err != nil {
		return err
	}
	// A rename would replace an empty directory.
	if _, err := os.Lstat(final); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w, and is never overwritten: give a new directory", final, fs.ErrExist)
	}
	return errors.Join(os.Rename(dir, final), disk.SyncDir(filepath.Dir(final)))
}

// notMade replaces the file's name in an error by the directory's. Nil stays nil.
func notMade(dir string, err error) error {
	e := (*fs.PathError)(nil)
	if !errors.As(err, &e) {
		return err
	}
	if errors.Is(e.Err, fs.ErrPermission) {
		return fmt.Errorf("%s: cannot be made (%w): run this as a user with that permission, such as root, "+
			"or give another directory", dir, e.Err)
	}
	return fmt.Errorf("%s: cannot be made: %w", dir, e.Err)
}
