package daemon

import (
	"os"

	"golang.org/x/sys/unix"
)

// machineMemory returns how many bytes of memory the machine has, 0 if it does
// not say.
func machineMemory() uint64 {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0
	}
	return uint64(s.Totalram) * uint64(s.Unit) //nolint:unconvert // 32 bits on some machines
}

// syncFileSystem brings all of the file system that dir is on to its disk.
func syncFileSystem(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }
