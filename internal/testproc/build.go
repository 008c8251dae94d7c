package testproc

import (
	"fmt"
	"os/exec"
	"runtime/debug"
	"slices"
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
