package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// writeFile writes a file so that path has either what it had or all of b,
// whenever the process ends. The name becomes durable with syncDir of its
// directory; b is by then.
//
// The temporary file has a fixed name, unlike those of renameio, so that
// agents that are killed leave one behind at most, and it lies in the same
// directory, so that no part of a key is ever anywhere else. That takes a
// single writer: the agent's lock sees to it.
func writeFile(path string, b []byte, mode fs.FileMode) error {
	return replaceFile(path, b, mode, (*os.File).Sync)
}

// writeUnsynced is writeFile for what may be empty after a power failure: each
// sync costs a fleet's boot storm as much as a network round trip.
func writeUnsynced(path string, b []byte, mode fs.FileMode) error {
	return replaceFile(path, b, mode, func(*os.File) error { return nil })
}

func tempName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
}

func replaceFile(path string, b []byte, mode fs.FileMode, sync func(*os.File) error) error {
	temp := tempName(path)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	// Not left to the umask, and before the name is the real one.
	err = errors.Join(err, f.Chmod(mode), sync(f), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// rename is os.Rename, with the errors that mean a mount point explained.
func rename(from, to string) error { return explainMount(os.Rename(from, to), from) }

func explainMount(err error, path string) error {
	switch {
	case errors.Is(err, syscall.EXDEV) && sameDevice(path, filepath.Dir(path)):
		return &cause{what: fmt.Errorf("%s is of the lower layer of an overlay file system, which cannot rename it: %w", path, err),
			remedy: "make the directory anew (move what is in it away, remove and make it, and move it back), or choose an --ssl-dir that is not in the image"}
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EXDEV):
		return mountError(path)
	}
	return err
}

func sameDevice(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && device(x) == device(y)
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(syncOpen(d), d.Close())
}

// syncOpen is syncDir of a directory that is open.
func syncOpen(d *os.File) error {
	err := d.Sync()
	// Some file systems cannot sync a directory, and need not.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}

func mountError(path string) error {
	return &cause{what: fmt.Errorf("%s is a mount point, which cannot be switched in one step", path),
		remedy: "mount the directory above it, or choose an --ssl-dir inside it"}
}
