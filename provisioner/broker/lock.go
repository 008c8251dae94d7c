package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFile is the file in StoreDir whose lock says that a broker serves it.
const lockFile = "broker.lock"

// LockFile returns the file in a store directory whose lock says that a broker
// serves it.
func LockFile(dir string) string { return filepath.Join(dir, lockFile) }

// Lock keeps brokers off a store directory, which it makes if it is missing,
// until release is called or the process ends. It returns [ErrStoreInUse] if one
// serves it.
func Lock(dir string) (release func(), err error) {
	f, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return func() { unlock(f) }, nil
}

// lockDir makes dir if it is missing and locks it against other brokers until
// the file it returns is closed, or the process ends however it ends.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
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

// unlock gives a directory free. Unlocking comes before closing: a child process
// that is being started has the file open, too, until it runs its program.
func unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close() // nothing was written to it; the end of the process unlocks it as well
}
