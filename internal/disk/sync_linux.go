package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncFileSystem(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }
