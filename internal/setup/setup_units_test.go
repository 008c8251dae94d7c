package setup_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/setup"
	"muster/internal/testproc"
)

// TestUnitsSayWhatTheyDoNotSee has setups in places that the units hide from the provisioner.
func TestUnitsSayWhatTheyDoNotSee(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile(filepath.Join(install(t, nil), "systemd", "muster-provisioner.service"))
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		"/home/anna/prov": "/home", "/home": "/home", "/root/prov": "/root", "/run/user/1000/prov": "/run/user",
		"/tmp/prov": "/tmp", "/var/tmp/a/b": "/var/tmp", "/srv/../tmp/prov": "/tmp",
		"/etc/muster/provisioner": "", "/homes/anna": "", "/srv/home/prov": "", "/tmpfs": "", "/": "",
	} {
		setting, hidden := setup.HiddenFromUnits(dir)
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
	if _, hidden := setup.HiddenFromUnits(link); hidden != "/tmp" {
		t.Errorf("a link to /tmp: %q is hidden", hidden)
	}
}

// TestUnitsTakeAnyDirectory has systemd itself read the unit of a setup whose path has what is
// special to it.
func TestUnitsTakeAnyDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a b;c", `50%o "$HOME" 'x\y`)
	if err := setup.Init(dir, setup.Installation{Name: "prov1.example.net", TrustDomain: "example.net"}); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(dir, "systemd", "muster-provisioner.service")
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	// systemd-analyze wants a path of its own, and a program that is there.
	text = bytes.Replace(text, []byte("/usr/bin/muster provisioner run"), []byte("/bin/echo"), 1)
	copied := filepath.Join(t.TempDir(), "muster-provisioner.service")
	if err := os.WriteFile(copied, text, 0o600); err != nil {
		t.Fatal(err)
	}
	testproc.Needs(t, "systemd-analyze")
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", copied).CombinedOutput()
	if err != nil || strings.Contains(string(out), "muster-provisioner.service") {
		t.Errorf("%v\n%s%s", err, out, text)
	}
	for _, want := range []string{
		`--config "` + filepath.Dir(dir) + `/50%%o \"$$HOME\" 'x\\y/provisioner.yaml"` + "\n",
		`ReadWritePaths="` + filepath.Dir(dir) + `/50%%o \"$HOME\" 'x\\y/data"` + "\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the unit lacks %s:\n%s", want, text)
		}
	}

	if err := setup.Init(dir+"\nx", setup.Installation{Name: "prov1.example.net", TrustDomain: "example.net"}); err == nil || !strings.Contains(err.Error(), "control character") {
		t.Errorf("Init of a name of two lines: %v", err)
	}
}
