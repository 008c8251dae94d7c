package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openUnnamed opens a file that can become path and has no name until then, so that
// nothing is left of it when the process is killed. It is nil where that is not
// possible, for whatever reason: some network file systems cannot, and the name comes by
// way of /proc.
func openUnnamed(path string) *os.File {
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
	if _, err := os.Lstat(procName(f)); err != nil {
		_ = f.Close()
		return nil
	}
	return f
}

// linkUnnamed gives the file its name, unless there is something.
func linkUnnamed(f *os.File, path string) error {
	return unix.Linkat(unix.AT_FDCWD, procName(f), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}

func procName(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
