package server_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/testproc"
	"muster/server"
)

// unitCapabilities returns what the unit of `muster provisioner init` leaves to an agent, as
// setpriv(1) takes it.
func unitCapabilities(t *testing.T) string {
	t.Helper()
	const setting = "CapabilityBoundingSet="
	for line := range strings.Lines(readFile(t, "../internal/daemon/setup/systemd/muster-server.service.tmpl")) {
		names, is := strings.CutPrefix(line, setting)
		if !is {
			continue
		}
		set := "-all"
		for _, name := range strings.Fields(names) {
			set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
		}
		return set
	}
	t.Fatal("the unit has no " + setting)
	return ""
}

// TestUnderItsUnitFilesOfOthersStayTheirs has a group be let into the directory, and a user
// keep files of its own in it, where the agent runs with the capabilities that its unit
// leaves to it: they stay theirs with each renewal, and keep none from coming.
func TestUnderItsUnitFilesOfOthersStayTheirs(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("files of others take root")
	}
	testproc.Needs(t, "setpriv")
	capabilities := unitCapabilities(t)
	const other = 12345
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	f.member(t, cfg)
	theirs := filepath.Join(cfg.SSLDir, "app", "app.key")
	writeFile(t, theirs, "theirs")
	own := func(path string, uid int, mode fs.FileMode) {
		t.Helper()
		if err := os.Chown(path, uid, other); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	own(cfg.SSLDir, 0, 0o750|fs.ModeSetgid)
	own(filepath.Dir(theirs), other, 0o700)
	own(theirs, other, 0o600)
	is := func(path string, uid uint32, mode fs.FileMode) {
		t.Helper()
		fi, err := os.Stat(path)
		if err != nil {
			t.Error(err)
			return
		}
		if st := fi.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != other || fi.Mode()&^fs.ModeDir != mode {
			t.Errorf("%s is of %d:%d with mode %v, want %d:%d and %v", path, st.Uid, st.Gid, fi.Mode()&^fs.ModeDir, uid, other, mode)
		}
	}

	cmd, stderr := startChildBy(t, job{TokenFile: cfg.TokenFile, ConfFile: cfg.ConfFile, SSLDir: cfg.SSLDir, Identity: cfg.Identity,
		Later: life * 3 / 4, Until: server.EventConfirmed}, "setpriv", "--bounding-set", capabilities, "--inh-caps", "-all")
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }).Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v:\n%s", err, stderr)
	}
	is(cfg.SSLDir, 0, 0o750|fs.ModeSetgid)
	is(filepath.Dir(theirs), other, 0o700)
	is(theirs, other, 0o600)
	for _, left := range []string{filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.next"), filepath.Join(cfg.SSLDir, "staged")} {
		if exists(left) {
			t.Errorf("%s is left over:\n%s", left, stderr)
		}
	}
}
