package testproc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

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

// NATSServer returns the path of a nats-server built from the module in go.mod; the user's cache directory keeps it.
func NATSServer(t testing.TB) string {
	t.Helper()
	path, err := builtServer()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var builtServer = sync.OnceValues(func() (string, error) {
	const module = "github.com/nats-io/nats-server/v2"
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", module, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "muster-test", "nats-server-"+strings.TrimSpace(string(version)))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	building := fmt.Sprintf("%s.%d", path, os.Getpid())
	if out, err := exec.Command("go", "build", "-o", building, module).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", module, err, out)
	}
	return path, os.Rename(building, path) // another process may have done the same
})
