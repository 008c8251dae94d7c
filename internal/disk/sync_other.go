//go:build unix && !linux

package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem begins to write all file systems to disk; sync(2) may return earlier.
func syncFileSystem(*os.File) error { return unix.Sync() }
