package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"muster/internal/disk"
	"muster/internal/inputfile"
)

const lockFile = "broker.lock"

// Lock makes a directory if missing, and keeps brokers from using it until [Unlock]. It may return [ErrStoreInUse].
func Lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}
	f, err := inputfile.OpenState(filepath.Join(dir, lockFile), 0)
	if err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}
	locked, err := disk.TryLock(f)
	switch {
	case err != nil:
		err = fmt.Errorf("lock store directory %q: %w", dir, err)
	case !locked:
		err = fmt.Errorf("%w: %q", ErrStoreInUse, dir)
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// Unlock releases the directory.
func Unlock(f *os.File) {
	disk.Unlock(f)
	_ = f.Close() // nothing was written to it
}
