package puppet_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"muster/internal/testproc"
)

// script runs a script of this tree, and returns what it prints.
func script(t *testing.T, path string, env ...string) string {
	t.Helper()
	testproc.NeedsInstall(t)
	testproc.NeedsRoot(t)
	muster, err := builtMuster()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has processes to end
	cmd.Env = append(append(os.Environ(), "MUSTER="+muster, "TMPDIR="+t.TempDir()), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, out)
	}
	return string(out)
}

// TestCalls makes each call of both protocols with curl.
func TestCalls(t *testing.T) {
	t.Parallel()
	out := script(t, "./calls.sh", "PORT="+testproc.FreePort(t))
	if strings.Contains(out, "WRONG") || strings.Count(out, "\n") < 100 {
		t.Errorf("calls.sh prints:\n%s", out)
	}
}

// TestExample runs examples/puppet with both agents.
func TestExample(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	puppet8, err := unpacked()
	if err != nil {
		t.Fatal(err)
	}
	out := script(t, "../../examples/puppet/run.sh", "PORT="+testproc.FreePort(t), "PUPPET8="+puppet8)
	for _, want := range []string{"identity = web8.example.net", "the agent has its certificate", "for spare parts",
		"identity_taken", "renew", "revoked"} {
		if !strings.Contains(out, want) {
			t.Errorf("run.sh does not print %q:\n%s", want, out)
		}
	}
}

// TestCompileServer has a puppetserver without an authority serve agents whose certificates are muster's.
func TestCompileServer(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	puppet8, err := unpacked()
	if err != nil {
		t.Fatal(err)
	}
	// The user puppet cannot reach the test's own directory.
	out := script(t, "./compile.sh", "TMPDIR="+os.TempDir(), "PORT="+testproc.FreePort(t), "PUPPET8="+puppet8)
	for _, want := range []string{"compiled for web7.example.net", "compiled for web8.example.net", "certificate unknown",
		"the other agent still gets catalogs"} {
		if !strings.Contains(out, want) {
			t.Errorf("compile.sh does not print %q:\n%s", want, out)
		}
	}
}
