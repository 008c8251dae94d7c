package server

import (
	"errors"
	"fmt"

	"muster/internal/disk"
	"muster/internal/inputfile"
)

// lockFile creates path and takes an exclusive lock on it. The kernel releases the lock when the process ends. The
// file is not removed: two processes could then lock two files of the same name.
func lockFile(path string) (release func(), err error) {
	f, err := inputfile.OpenState(path, 0)
	if err != nil {
		// A node with a certificate continues if its disk becomes read-only.
		reads, rerr := inputfile.Open(path, inputfile.Configured)
		if rerr != nil {
			return nil, err
		}
		f = reads
	}
	locked, err := disk.TryLock(f)
	switch {
	case err != nil:
		err = fmt.Errorf("lock %s: %w", path, err)
	case !locked:
		err = fmt.Errorf("%w: %s is locked: stop the other agent, or use another --ssl-dir and --config",
			ErrLocked, path)
	default:
		return func() {
			disk.Unlock(f)
			_ = f.Close() // nothing was written to it
		}, nil
	}
	return nil, errors.Join(err, f.Close())
}
