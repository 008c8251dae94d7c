package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestWhoMayNotReadIsToRemoveNothing has somebody begin a roll-over again who may not read what
// it has made, its keys among it.
func TestWhoMayNotReadIsToRemoveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	muster(t, dir, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "example.net")
	muster(t, dir, "ca", "roll", "--config", "prov/provisioner.yaml")
	key := filepath.Join(dir, "prov", "ca-2", "issuing-key.pem")
	if err := os.Chmod(key, 0); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "ca", "roll", "--config", "prov/provisioner.yaml")
	if f, err := os.Open(key); err == nil { // root may read everything, but for one without that right
		_ = f.Close()
		cmd = exec.CommandContext(t.Context(), "setpriv", append([]string{"--bounding-set", "-dac_override,-dac_read_search", binary(t)}, cmd.Args[1:]...)...)
	}
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput()
	want := regexp.MustCompile(`\Amuster: open .*/issuing-key\.pem: permission denied: run this as root or as the provisioner's user\n\z`)
	if cmd.ProcessState.ExitCode() != 1 || !want.Match(out) {
		t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}
