package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem brings all of the file system that dir is on to its disk.
func syncFileSystem(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }
