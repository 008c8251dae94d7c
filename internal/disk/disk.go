// Package disk measures free space, syncs file systems and locks files.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// SyncDir syncs dir, so that new and renamed files in it survive a power cut.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(syncNames(d), d.Close())
}

// InPlace returns an error unless the file is still at the path that it was opened by.
func InPlace(opened *os.File) error {
	mine, err := opened.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(opened.Name())
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, there) {
		return fmt.Errorf("%s was replaced since the start", opened.Name())
	}
	return err
}
