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
	for _, dir := range []string{"/muster", "/etc"} {
		_, err := server.New(server.Config{ConfFile: disk + dir + "/server.conf", SSLDir: disk + dir + "/ssl"})
		if err == nil || !strings.HasSuffix(err.Error(), remedy) {
			t.Errorf("New = %v", err)
		}
	}
}

// TestADirectoryIsNoConfiguration has somebody leave the file's name out: nothing of theirs is moved
// away, not the directory that the node's own files are in either.
func TestADirectoryIsNoConfiguration(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]struct{ conf, ssl string }{
		"that of the set":           {"web1", "web1"},
		"that around it":            {"etc", "etc/ssl"},
		"that around it, by a link": {"link", "etc/ssl"},
		"another one":               {"home", "web1"},
		"one called like a file":    {"muster.conf", "muster.conf/ssl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			cfg := server.Config{ConfFile: filepath.Join(top, dir.conf), SSLDir: filepath.Join(top, dir.ssl)}
			theirs := filepath.Join(top, filepath.Base(dir.conf), "theirs")
			if dir.conf == "link" {
				theirs = filepath.Join(top, "etc", "theirs")
			}
			writeFile(t, theirs, "theirs")
			if err := os.MkdirAll(cfg.SSLDir, 0o755); err != nil {
				t.Fatal(err)
			}
			if dir.conf == "link" {
				if err := os.Symlink("etc", cfg.ConfFile); err != nil {
					t.Fatal(err)
				}
			}
			_, err := server.New(cfg)
			_, doctor := server.Doctor(t.Context(), cfg)
			for _, err := range []error{err, doctor} {
				if err == nil || !strings.Contains(err.Error(), cfg.ConfFile+`" is a directory, want the name of a file, such as `+cfg.ConfFile+"/server.conf") {
					t.Errorf("got %v, want that it is a directory, and what is wanted", err)
				}
			}
			if got := readFile(t, theirs); got != "theirs" {
				t.Errorf("their file is %q", got)
			}
		})
	}
}
