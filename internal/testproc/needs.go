package testproc

import (
	"os"
	"os/exec"
	"testing"
)

// Needs skips a test that runs programs beyond Go, openssl and git: with -short, and on a machine
// that has not all of them. `make ci` installs them and sets MUSTER_CI, and there one that is
// missing fails the test.
func Needs(t testing.TB, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs other programs: `make ci` runs it")
	}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			if InCI() {
				t.Fatalf("%v: run `make deps`", err)
			}
			t.Skipf("%v: `make deps` installs it", err)
		}
	}
}

// NeedsRoot skips a test of what only root may do. In `make ci` that fails the test.
func NeedsRoot(t testing.TB) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case InCI():
		t.Fatal("wants root")
	default:
		t.Skip("wants root: `make ci` runs it")
	}
}

// InCI says that `make ci` runs the tests: what cannot be tested then is a failure.
func InCI() bool { return os.Getenv("MUSTER_CI") != "" }
