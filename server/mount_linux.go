package server

import "golang.org/x/sys/unix"

// mountedAt reports whether something is mounted at path: of the same device, too, as a
// bind mount may be. Kernels before 5.8 do not say.
func mountedAt(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
