package testproc

import (
	"os"
	"os/exec"
	"testing"
)

// Needs skips a test if a program is missing, or with -short. With MUSTER_CI, which `make ci` sets, a missing program
// fails the test.
func Needs(t testing.TB, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("the test runs other programs: run it with `make ci`")
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

// NeedsRoot skips a test that needs root; `make ci` fails it instead.
func NeedsRoot(t testing.TB) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case InCI():
		t.Fatal("wants root")
	default:
		t.Skip("the test needs root: run it with `make ci`")
	}
}

// NeedsInstall skips a test of packages, images, charts or releases, unless `make ci-install` runs it.
func NeedsInstall(t testing.TB) {
	t.Helper()
	if os.Getenv("MUSTER_CI_INSTALL") == "" {
		t.Skip("the test takes minutes: run it with `make ci-install`")
	}
}

// InCI reports whether `make ci` runs the tests, where nothing may be skipped.
func InCI() bool { return os.Getenv("MUSTER_CI") != "" }
