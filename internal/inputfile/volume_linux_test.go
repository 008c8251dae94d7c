package inputfile_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/inputfile"
	"muster/internal/testproc"
)

// TestVolumeOfAContainer judges an emptyDir of Kubernetes: it is safe for the first process of a container alone.
func TestVolumeOfAContainer(t *testing.T) {
	t.Parallel()
	testproc.NeedsRoot(t)
	const name = "MUSTER_TEST_VOLUME"
	if dir := os.Getenv(name); dir != "" { // the first process
		judgeVolume(t, dir)
		return
	}
	dir := filepath.Join(t.TempDir(), "volume")
	foreign, file := filepath.Join(dir, "foreign"), filepath.Join(dir, "file")
	err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(foreign, 0o700), os.WriteFile(file, nil, 0o600),
		os.Chmod(dir, 0o777|fs.ModeSetgid), os.Chmod(foreign, 0o777), os.Chown(foreign, 1, 0), os.Chmod(file, 0o666))
	if err != nil {
		t.Fatal(err)
	}
	if err := inputfile.SafeDir(dir); !errors.Is(err, inputfile.ErrUnsafe) {
		t.Errorf("outside a container: %v, want %v", err, inputfile.ErrUnsafe)
	}
	first := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestVolumeOfAContainer$", "-test.v")
	first.Env = append(os.Environ(), name+"="+dir)
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if out, err := first.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

func judgeVolume(t *testing.T, dir string) {
	t.Helper()
	for path, want := range map[string]error{"": nil, "new": fs.ErrNotExist, "foreign": inputfile.ErrUnsafe,
		"file": inputfile.ErrUnsafe} {
		for _, safe := range []func(string, ...int) error{inputfile.Safe, inputfile.SafeDir} {
			if err := safe(filepath.Join(dir, path)); !errors.Is(err, want) {
				t.Errorf("%q: %v, want %v", path, err, want)
			}
		}
	}
}
