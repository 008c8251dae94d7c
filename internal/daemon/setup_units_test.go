package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/daemon"
)

// TestUnitsSayWhatTheyDoNotSee has setups in places that the units hide from the provisioner.
func TestUnitsSayWhatTheyDoNotSee(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile(filepath.Join(setup(t, nil), "systemd", "muster-provisioner.service"))
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		"/home/anna/prov": "/home", "/home": "/home", "/root/prov": "/root", "/run/user/1000/prov": "/run/user",
		"/tmp/prov": "/tmp", "/var/tmp/a/b": "/var/tmp", "/srv/../tmp/prov": "/tmp",
		"/etc/muster/provisioner": "", "/homes/anna": "", "/srv/home/prov": "", "/tmpfs": "", "/": "",
	} {
		setting, hidden := daemon.HiddenFromUnits(dir)
		if hidden != want || (setting == "") != (want == "") {
			t.Errorf("%s: %q hides %q, want %q hidden", dir, setting, hidden, want)
		}
		if !strings.Contains("\n"+string(unit), "\n"+setting+"\n") && setting != "" {
			t.Errorf("the unit does not have %q", setting)
		}
	}

	// The way is in vain if where it leads to is hidden.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/tmp", link); err != nil {
		t.Fatal(err)
	}
	if _, hidden := daemon.HiddenFromUnits(link); hidden != "/tmp" {
		t.Errorf("a link to /tmp: %q is hidden", hidden)
	}
}
