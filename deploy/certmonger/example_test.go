package certmonger_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"muster/internal/testproc"
)

// TestExample runs examples/service-certificates in its short form.
func TestExample(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	testproc.NeedsRoot(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "../../examples/service-certificates/run.sh")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has processes to end
	cmd.Env = append(os.Environ(), "MUSTER="+work+"/muster", "MUSTER_SERVER="+work+"/muster-server",
		"TMPDIR="+t.TempDir(), "PORT="+testproc.FreePort(t))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(out), " 0 failed"); got != 4 {
		t.Errorf("%d lines without failures, want 4", got)
	}
}
