package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// pending is a file under another name: renameio has no Windows.
type pending struct {
	*os.File
	path string
}

func newPending(path string, _ fs.FileMode) (pending, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"*")
	return pending{f, path}, err
}

// Cleanup removes the file, unless CloseAtomicallyReplace has renamed it.
func (p pending) Cleanup() error {
	return errors.Join(p.Close(), os.Remove(p.Name()))
}

// CloseAtomicallyReplace syncs and closes the file, and renames it.
func (p pending) CloseAtomicallyReplace() error {
	return errors.Join(p.Sync(), p.Close(), os.Rename(p.Name(), p.path))
}
