package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem writes all data of dir's file system to disk.
func syncFileSystem(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }
