package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testproc"
)

// TestUnreadableFileErrorNamesTheUserToRunAs runs commands as a user that may not read a key or a directory of the
// installation: the error says to run them as root or as the provisioner's user.
func TestUnreadableFileErrorNamesTheUserToRunAs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ closed, args string }{
		{"prov/seal-key.pem", "provisioner run --validate"},
		{"prov", "provisioner run --validate"},
		{"prov", "ca show"},
		{"prov/ca", "ca show"},
		{"prov", "broker config --host n1.example.net"},
		{"prov", "broker certificate n1 --host n1.example.net"},
	} {
		t.Run(tt.args+" "+tt.closed, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net")
			path := filepath.Join(dir, tt.closed)
			if err := os.Chmod(path, 0); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(path, 0o700) }) // so that the test can remove it
			cmd := command(t, append(strings.Fields(tt.args), "--config", "prov/provisioner.yaml")...)
			if os.Geteuid() == 0 { // root may read everything
				testproc.Needs(t, "setpriv")
				cmd = exec.CommandContext(t.Context(), "setpriv", append([]string{"--bounding-set", "-dac_override,-dac_read_search", binary(t)}, cmd.Args[1:]...)...)
			}
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput()
			want := ": permission denied: run this as root or as the provisioner's user\n"
			if cmd.ProcessState.ExitCode() != 1 || !strings.HasSuffix(string(out), want) {
				t.Errorf("exit %d: %s want %s", cmd.ProcessState.ExitCode(), out, want)
			}
		})
	}
}
