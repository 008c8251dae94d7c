package broker

import "golang.org/x/sys/unix"

// sharedMemory is the file system in memory that every Linux has.
const sharedMemory = "/dev/shm"

// hasMemory reports whether it is there.
func hasMemory() bool {
	var f unix.Statfs_t
	return unix.Statfs(sharedMemory, &f) == nil && f.Type == unix.TMPFS_MAGIC
}
