package bench

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// yield has the calling thread, and what it starts, wait for its turn. It may be forbidden.
func yield() {
	if attr, err := unix.SchedGetAttr(0, 0); err == nil {
		attr.Policy = unix.SCHED_BATCH
		_ = unix.SchedSetAttr(0, attr, 0)
	}
}

// fileSystem names the kind of file system of dir, if it is a usual one.
func fileSystem(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "an unknown file system"
	}
	switch int64(s.Type) {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "XFS"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs, which syncs nothing,"
	default:
		return fmt.Sprintf("file system %#x", s.Type)
	}
}
