package testdisk

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Unwritable returns a directory in which no file can be created; for root it is /sys. If /sys is mounted read-only,
// the test is skipped.
func Unwritable(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		dir := filepath.Join(t.TempDir(), "closed")
		if err := os.Mkdir(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const sysfs = "/sys"
	var fs unix.Statfs_t
	if err := unix.Statfs(sysfs, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		t.Skip(sysfs + " is mounted read-only")
	}
	return sysfs
}
