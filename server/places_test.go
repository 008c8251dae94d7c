package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"muster/server"
)

// Without root the agent cannot make its directories: it says so once, with a remedy.
func TestADirectoryThatCannotBeMadeIsReported(t *testing.T) {
	t.Parallel()
	closed := unwritable(t)
	_, err := server.New(server.Config{ConfFile: closed + "/muster/server.conf", SSLDir: closed + "/muster/ssl"})
	if err == nil || !errors.Is(err, os.ErrPermission) || strings.Count(err.Error(), closed+"/muster") != 1 ||
		!strings.HasSuffix(err.Error(),
			"use --config and --ssl-dir to name directories that its user can write to") {
		t.Errorf("New = %v", err)
	}
}

// unwritable returns a directory in which no file can be created; for root it is /sys. If /sys is mounted read-only,
// the test is skipped.
func unwritable(t testing.TB) string {
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
