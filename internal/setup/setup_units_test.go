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

	if err := setup.Init(dir+"\nx",
		setup.Installation{Name: "prov1.example.net", TrustDomain: "example.net"}); err == nil ||
		!strings.Contains(err.Error(), "control character") {
		t.Errorf("Init of a name of two lines: %v", err)
	}
}
