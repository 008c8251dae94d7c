package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// ErrExists means that a file is there and was left alone. It is [fs.ErrExist]
// in words that say what to do.
var ErrExists = fmt.Errorf("%w; nothing was written, use --force to replace it", fs.ErrExist)

// WriteNew writes data to a file that appears complete and with exactly these
// permissions, or not at all, and is on disk when WriteNew returns. If there
// is something at path already, it is replaced if force is set; else it stays
// and the error wraps [ErrExists].
func WriteNew(path string, data []byte, mode fs.FileMode, force bool) (err error) {
	if !force {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s: %w", path, ErrExists)
		}
	}
	dir := filepath.Dir(path)
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // nothing left to do after a rename; else the cause is in err
	if _, err := f.Write(data); err != nil {
		return err
	}
	if force {
		err = f.CloseAtomicallyReplace()
	} else {
		err = linkNew(f, path)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// linkNew gives the finished temporary file its name. Unlike a rename, a link
// fails if somebody else took the name meanwhile.
func linkNew(f *renameio.PendingFile, path string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	err := os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	return err
}

// syncDir makes a new name in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
