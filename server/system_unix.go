//go:build unix

package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockFile takes an exclusive flock on path, which it creates. The kernel
// releases it when the process ends, however it ends. The file stays: removing
// it would let two processes lock two files of one name.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		// On a disk that has become read-only, a node that has its certificate works on.
		reads, rerr := os.Open(path)
		if rerr != nil {
			return nil, err
		}
		f = reads
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is held; stop the other agent, or give this one its own --ssl-dir and --config", ErrLocked, path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() {
		// Before closing: a child process that is being started has the file open,
		// too, until it runs its program.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		_ = f.Close()
	}, nil
}

// device returns the device that a file is on.
func device(fi fs.FileInfo) uint64 {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(st.Dev) //nolint:unconvert // its width differs between systems
}

// takeOver gives path the owner and the mode of like. Only root can give a file
// away; anybody else's agent owns what it makes already.
func takeOver(path string, like fs.FileInfo) error {
	if st, ok := like.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(path, int(st.Uid), int(st.Gid)); err != nil && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	return os.Chmod(path, like.Mode().Perm()|like.Mode()&fs.ModeSetgid)
}
