package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// ErrExists means that a file is there and was left alone. It is [fs.ErrExist]
// in words that say what to do.
var ErrExists = fmt.Errorf("%w; nothing was written, use --force to replace it", fs.ErrExist)

// CheckNew reports why [WriteNew] could not write to path, as far as that can
// be told beforehand, before a passphrase is asked for in vain. The
// error wraps [ErrExists] if there is something at path and force is not set.
func CheckNew(path string, force bool) error {
	if to, err := os.Stat(path); err == nil && !to.Mode().IsRegular() { // of a link, the target counts
		return fmt.Errorf("%s: is a directory, a device or the like, and is never replaced; want the name of a file", path)
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

// notWritten says that path cannot be written because of err, which names a
// temporary file or a directory in its place. Of nil it returns nil.
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

// WriteNew writes data to a file that appears complete and with exactly these
// permissions, or not at all, and is on disk when WriteNew returns. If there
// is something at path already, it is replaced if force is set, unless it is a
// directory; else it stays and the error wraps [ErrExists].
func WriteNew(path string, data []byte, mode fs.FileMode, force bool) error {
	return WriteNewBy(path, mode, force, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WriteNewBy is [WriteNew] for what does not fit into memory: fill writes it,
// and nothing appears if it returns an error, which is returned as it is, but for that of a write.
func WriteNewBy(path string, mode fs.FileMode, force bool, fill func(io.Writer) error) error {
	if err := CheckNew(path, force); err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
	if err != nil {
		return notWritten(path, err)
	}
	defer func() { _ = f.Cleanup() }() // nothing left to do after a rename; else the cause is in the error
	if err := fill(f); err != nil {
		if e := (*fs.PathError)(nil); errors.As(err, &e) && e.Path == f.Name() {
			return notWritten(path, e)
		}
		return err
	}
	if force {
		err = f.CloseAtomicallyReplace()
	} else if err = f.Sync(); err == nil {
		err = os.Link(f.Name(), path) // unlike a rename, it fails if the name was taken meanwhile
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s: %w", path, ErrExists)
	case err != nil:
		return notWritten(path, err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a new name in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
