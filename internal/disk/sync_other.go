//go:build !linux

package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem begins to bring all file systems to their disks (sync(2), which need not wait).
func syncFileSystem(*os.File) error { return unix.Sync() }
