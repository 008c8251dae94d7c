//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"muster/internal/disk"
)

// ErrExists means that a file exists and was left alone. It wraps [fs.ErrExist].
var ErrExists = fmt.Errorf("%w; nothing was written, use --force to replace it", fs.ErrExist)

// CheckNew returns the error that [WriteNew] would return, as far as that is known before writing, so that no
// passphrase is asked for in vain. The error wraps [ErrExists] if path exists and force is not set.
func CheckNew(path string, force bool) error {
	if to, err := os.Stat(path); err == nil && !to.Mode().IsRegular() { // follows links
		return fmt.Errorf("%s: is a directory or device, which is never replaced; want the name of a file", path)
	}
	_, err := os.Lstat(path)
	switch {
	case err == nil && !force:
		return fmt.Errorf("%s: %w", path, ErrExists)
	case errors.Is(err, fs.ErrNotExist):
		_, err = os.Stat(filepath.Dir(path))
	}
	return notWritten(path, err)
}

// notWritten names path in err, which names a temporary file or a directory instead. notWritten of nil is nil.
func notWritten(path string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	} else if e := (*os.LinkError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return fmt.Errorf("%s: directory %s: %w", path, filepath.Dir(path), err)
}

// WriteNew writes a file that appears complete and with exactly these permissions, or not at all. It is on disk when
// WriteNew returns. If path exists, force replaces a file; else the file stays and the error wraps [ErrExists].
func WriteNew(path string, data []byte, mode fs.FileMode, force bool) error {
	return WriteNewBy(path, mode, force, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WriteNewBy is [WriteNew] for a file that does not fit into memory: fill writes it. If fill fails, no file appears.
func WriteNewBy(path string, mode fs.FileMode, force bool, fill func(io.Writer) error) error {
	if err := CheckNew(path, force); err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(mode))
	if err != nil {
		return notWritten(path, err)
	}
	defer func() { _ = f.Cleanup() }() // after a rename there is nothing to clean up
	if err := fill(f); err != nil {
		if e := (*fs.PathError)(nil); errors.As(err, &e) && e.Path == f.Name() {
			return notWritten(path, e)
		}
		return err
	}
	if force {
		err = f.CloseAtomicallyReplace()
	} else if err = f.Sync(); err == nil {
		err = os.Link(f.Name(), path) // unlike a rename, a link never replaces a file
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s: %w", path, ErrExists)
	case err != nil:
		return notWritten(path, err)
	}
	return disk.SyncDir(filepath.Dir(path))
}
