// Package testproc builds and starts processes for tests.
package testproc

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// starter runs functions on the one thread that starts children.
var starter = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

// Start starts cmd so that the kernel kills it when this process ends, even by a panic.
//
// Linux kills such a child when the thread that started it ends, and Go may end threads early (package chaos locks some
// to change the network). Therefore one permanent thread starts all children.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = cmp.Or(cmd.SysProcAttr, &syscall.SysProcAttr{})
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}

// Build builds muster and muster-server into dir. It uses the race detector if the test does, so that dependencies are
// compiled already; flags replace that, and with -trimpath all would be compiled once more.
func Build(dir string, flags ...string) error {
	if info, ok := debug.ReadBuildInfo(); ok && len(flags) == 0 &&
		slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		flags = []string{"-race"}
	}
	args := append([]string{"build", "-o", dir + "/"}, flags...)
	out, err := exec.Command("go", append(args, "muster/cmd/muster", "muster/cmd/muster-server")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	return nil
}

// NATSServer returns the path of a nats-server built from the module in go.mod; Go's build cache keeps it.
func NATSServer(t testing.TB) string {
	t.Helper()
	path, err := builtServer()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var builtServer = sync.OnceValues(func() (string, error) {
	build := exec.Command("go", "tool", "-n", "nats-server")
	build.Stderr = os.Stderr
	path, err := build.Output()
	if err != nil {
		return "", fmt.Errorf("build nats-server: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
})

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

// results of FreePort
var ports sync.Map

// FreePort returns an unused port of 127.0.0.1, never the same one twice, for a process that restarts on it. It avoids
// the kernel's ephemeral ports (on Linux from 32,768), which other processes could take meanwhile.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000)) //nolint:gosec // nothing is hidden
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue // another process has it
		}
		_ = l.Close() // nothing has connected
		if _, given := ports.LoadOrStore(port, true); !given {
			return port
		}
	}
	t.Fatal("no port of 127.0.0.1 is free")
	return ""
}
