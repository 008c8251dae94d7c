package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
)

// ErrExists means that a file is there and was left alone. It is [fs.ErrExist]
// in words that say what to do.
var ErrExists = fmt.Errorf("%w; nothing was written, use --force to replace it", fs.ErrExist)

// CheckNew reports why [WriteNew] could not write to path, as far as that can
// be told beforehand: so that nobody is asked for a passphrase in vain. The
// error wraps [ErrExists] if there is something at path and force is not set.
func CheckNew(path string, force bool) error {
	if to, err := os.Stat(path); err == nil && !to.Mode().IsRegular() { // whatever a link leads to
		if to.IsDir() {
			return fmt.Errorf("%s: is a directory, want the name of a file", path)
		}
		// Such as /dev/stdout: a file would take its name, and whoever uses it would be cut off.
		return fmt.Errorf("%s: is a device, a pipe or the like, and is never replaced; want the name of a file", path)
	}
	_, err := os.Lstat(path)
	switch {
	case err == nil && !force:
		return fmt.Errorf("%s: %w", path, ErrExists)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return notWritten(path, err)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return notWritten(path, err)
	}
	return nil
}

// notWritten says that path cannot be written because of err, which names a
// temporary file or a directory that nobody asked for, and what to do.
func notWritten(path string, err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	} else if e := (*os.LinkError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: directory %s does not exist (%w); make it first", path, dir, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: directory %s is not writable for you (%w); use another or change its permissions", path, dir, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: directory %s cannot be written by anybody (%w); use another or mount it for writing", path, dir, err)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %s is %w", path, dir, err)
	default:
		return fmt.Errorf("%s: %w", path, err)
	}
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
// and nothing appears if it returns an error, which is returned as it is, unless it
// is that of a write: that names path and says what to do, however it is wrapped. What
// a killed process had written goes with it, if force is not set and the file
// system can; else a temporary file stays.
func WriteNewBy(path string, mode fs.FileMode, force bool, fill func(io.Writer) error) error {
	if err := CheckNew(path, force); err != nil {
		return err
	}
	written := fill
	fill = func(w io.Writer) error {
		to := &destination{path: path, to: w}
		err := written(to)
		if to.err != nil {
			return to.err
		}
		return err
	}
	if !force { // no link takes the place of another file
		if f := openUnnamed(path); f != nil {
			return fillNew(path, f, mode, fill)
		}
	}
	return fillNamed(path, mode, force, fill)
}

// A destination is what [WriteNewBy] has filled. It keeps the error of a write, which whoever
// fills it may take for one of their own.
type destination struct {
	path string
	to   io.Writer
	err  error
}

// Write implements [io.Writer].
func (d *destination) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	if err != nil {
		d.err = notWritten(d.path, err)
		return n, d.err
	}
	return n, nil
}

// fillNew is the rest of WriteNewBy for a file that has no name yet.
func fillNew(path string, f *os.File, mode fs.FileMode, fill func(io.Writer) error) error {
	defer func() { _ = f.Close() }() // it was synced
	if err := f.Chmod(mode); err != nil {
		return notWritten(path, err)
	}
	if err := fill(f); err != nil {
		return err
	}
	return placed(path, linkNew(f, path, func() error { return linkUnnamed(f, path) }))
}

// fillNamed is the rest of WriteNewBy with a temporary name.
func fillNamed(path string, mode fs.FileMode, force bool, fill func(io.Writer) error) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
	if err != nil {
		return notWritten(path, err)
	}
	defer func() { _ = f.Cleanup() }() // nothing left to do after a rename; else the cause is in the error
	if err := fill(f); err != nil {
		return err
	}
	if force {
		return placed(path, f.CloseAtomicallyReplace())
	}
	return placed(path, linkNew(f.File, path, func() error { return os.Link(f.Name(), path) }))
}

// linkNew gives a finished file its name with link. Unlike a rename, a link
// fails if somebody else took the name meanwhile.
func linkNew(f *os.File, path string, link func() error) error {
	if err := f.Sync(); err != nil {
		return err
	}
	err := link()
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	return err
}

// placed ends the writing of a file that was to get its name, or was not for err.
func placed(path string, err error) error {
	if errors.Is(err, ErrExists) {
		return err
	}
	if err != nil {
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
