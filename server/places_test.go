package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"muster/internal/testdisk"
	"muster/server"
)

// TestADirectoryThatNobodyMayMake is what somebody meets who tries the agent without being
// root: what it could not make is said once, with what to do.
func TestADirectoryThatNobodyMayMake(t *testing.T) {
	t.Parallel()
	closed := testdisk.Closed(t)
	_, err := server.New(server.Config{ConfFile: closed + "/muster/server.conf", SSLDir: closed + "/muster/ssl"})
	if err == nil || !errors.Is(err, os.ErrPermission) || strings.Count(err.Error(), closed+"/muster") != 1 ||
		!strings.HasSuffix(err.Error(), "run the agent as root, or give it a --config and an --ssl-dir in directories that its user may write") {
		t.Errorf("New = %v", err)
	}
}

// TestADiskThatIsReadOnlyIsToldSo has the directory for the agent's files be on a disk that
// is read-only, as of an image that cannot be changed.
func TestADiskThatIsReadOnlyIsToldSo(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	const remedy = "give it a --config and an --ssl-dir in directories that can be written and outlast a restart"
	disk := t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	if err := os.Mkdir(disk+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(server.Config{ConfFile: disk + "/muster/server.conf", SSLDir: disk + "/muster/ssl"}); err == nil || !strings.HasSuffix(err.Error(), remedy) {
		t.Errorf("New = %v", err)
	}
	s, err := server.New(server.Config{ConfFile: disk + "/etc/server.conf", SSLDir: disk + "/etc/ssl"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.HasSuffix(err.Error(), remedy) {
		t.Errorf("Run = %v", err)
	}
}

// TestALinkToNothingIsSaidToBeOne has the agent's directory be a link, as of an image that
// cannot be changed into a disk that can, and is new.
func TestALinkToNothingIsSaidToBeOne(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "muster")
	if err := os.Symlink("../var/lib/muster", link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{link, link + "/web1"} {
		_, err := server.New(server.Config{ConfFile: dir + "/server.conf", SSLDir: dir + "/ssl"})
		if want := `"` + link + `" is a symbolic link to nothing: make the directory it points to`; err == nil || strings.Count(err.Error(), want) != 1 || strings.Contains(err.Error(), "exists") {
			t.Errorf("New = %v, want %s", err, want)
		}
	}
}
