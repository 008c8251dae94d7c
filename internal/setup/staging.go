package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"muster/internal/disk"
)

// makeDir makes a directory with all files that fill writes, or nothing: a private directory beside it is filled, and
// renamed when complete.
func makeDir(final string, mode fs.FileMode, fill func(*writer) error) error {
	dir := filepath.Join(filepath.Dir(final), "."+filepath.Base(final)+".new")
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return notMade(final, err)
	}
	lock, err := makeLocked(dir)
	if err != nil {
		return notMade(final, err)
	}
	defer func() { _ = lock.Close() }()
	w := &writer{dir: dir}
	err = cmp.Or(fill(w), w.err)
	if err == nil {
		err = place(dir, final, mode)
	}
	if err != nil {
		_ = os.RemoveAll(dir) // if this fails, the next run removes it
	}
	return notMade(final, err)
}

// makeLocked makes dir, private whatever the umask, and locks it until the result is closed. If a killed run has left
// dir, nothing locks it, and it is removed first.
func makeLocked(dir string) (*os.File, error) {
	err := os.Mkdir(dir, 0o700)
	left := errors.Is(err, fs.ErrExist)
	if err == nil {
		err = os.Chmod(dir, 0o700) //nolint:gosec // a directory
	}
	if err != nil && !left {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = lockDir(f, dir)
	if !left && (err == nil || !errors.Is(err, unix.EWOULDBLOCK)) { // some network file systems lock no directories
		return f, nil
	}
	if err == nil {
		err = os.RemoveAll(dir)
		_ = f.Close() // not before, or another run could use dir
		if err != nil {
			return nil, err
		}
		return makeLocked(dir)
	}
	_ = f.Close()
	return nil, fmt.Errorf("%s was left by a killed run, or another run is active: if none is active, remove it", dir)
}

// lockDir locks the directory that is open as f. The error is EWOULDBLOCK if another run has locked or replaced it.
func lockDir(f *os.File, dir string) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Lstat(dir); err != nil || !os.SameFile(opened, now) {
		return unix.EWOULDBLOCK
	}
	return nil
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
