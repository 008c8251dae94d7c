package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A driver waits for its turn, and whoever started it does not.
func TestDriversYield(t *testing.T) {
	t.Parallel()
	policy := func(pid int) uint32 {
		t.Helper()
		attr, err := unix.SchedGetAttr(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		return attr.Policy
	}
	before := policy(0)
	cmd := exec.Command("cat") // until its input ends
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := startYielding(cmd); err != nil {
		t.Fatal(err)
	}
	if got := policy(cmd.Process.Pid); got != unix.SCHED_BATCH {
		t.Errorf("policy of the driver is %d, want SCHED_BATCH (%d)", got, unix.SCHED_BATCH)
	}
	if got := policy(0); got != before {
		t.Errorf("policy of this process is %d, want %d as before", got, before)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestWhyAProcessEndedIsShownWhole reads logs of processes that ended.
func TestWhyAProcessEndedIsShownWhole(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]string{
		"": "its log is empty",
		"time=x level=INFO msg=a\ntime=y level=INFO msg=b\n":                                                                "time=y level=INFO msg=b",
		"time=x level=INFO msg=a\nmuster: bad.rego:3: rego_parse_error\nmuster:     default allow := \nmuster:         ^\n": "bad.rego:3: rego_parse_error\n    default allow := \n        ^",
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastWords(path); got != want {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}
