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

// TestALinkToItselfIsNamed has the directory of the set be a link that leads nowhere.
func TestALinkToItselfIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	loop := filepath.Join(dir, "web1")
	if err := os.Symlink("web1", loop); err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(server.Config{ConfFile: filepath.Join(dir, "server.conf"), SSLDir: loop}); err == nil ||
		!strings.Contains(err.Error(), loop) || !strings.Contains(err.Error(), "see where its links lead") {
		t.Errorf("New = %v, want which it is, and what to do", err)
	}
}
