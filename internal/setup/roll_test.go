package setup_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/setup"
	"muster/internal/testproc"
)

// rolled makes the next authority of a setup.
func rolled(t *testing.T, dir string) *setup.Rolled {
	t.Helper()
	r, err := (&setup.Maker{Config: filepath.Join(dir, "provisioner.yaml")}).Roll()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRolledFilesBelongToTheOwnerOfTheOldKey rolls over as root: the provisioner's user must be able to read the
// result.
func TestRolledFilesBelongToTheOwnerOfTheOldKey(t *testing.T) {
	t.Parallel()
	testproc.NeedsRoot(t)
	const uid, gid = 12345, 23456
	dir := install(t, nil)
	each := func(do func(path string, info fs.FileInfo)) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil {
				do(path, info)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	each(func(path string, _ fs.FileInfo) {
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	})
	rolled(t, dir)
	files := 0
	each(func(path string, info fs.FileInfo) {
		files++
		stat := info.Sys().(*syscall.Stat_t)
		if stat.Uid != uid || stat.Gid != gid {
			t.Errorf("%s belongs to %d:%d, want %d:%d", path, stat.Uid, stat.Gid, uid, gid)
		}
		if strings.HasSuffix(path, "-key.pem") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	})
	if files < 20 {
		t.Errorf("only %d files", files)
	}
}
