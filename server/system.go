package server

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"muster/internal/inputfile"

	"golang.org/x/sys/unix"
)

// lockFile creates path and takes an exclusive flock on it. The kernel releases the lock when the process ends. The
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
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is locked: stop the other agent, or use another --ssl-dir and --config",
				ErrLocked, path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() {
		// Unlock first: a child process that is being started keeps the file open until exec.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		_ = f.Close()
	}, nil
}

func inode(fi fs.FileInfo) uint64 {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(st.Ino) //nolint:unconvert // its width differs between systems
}
