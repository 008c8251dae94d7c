package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"muster/internal/inputfile"

	"golang.org/x/sys/unix"
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
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %q", ErrStoreInUse, dir)
		}
		return nil, fmt.Errorf("lock store directory %q: %w", dir, err)
	}
	return f, nil
}

// Unlock unlocks before closing, because a forked child has the file open until exec.
func Unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close() // nothing was written to it
}
