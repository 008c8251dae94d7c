package chaos_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/internal/testproc"
)

// clockEnv names a file that moves the clock of a process built with [overlay]: seconds in eight bytes, in the
// machine's byte order.
const clockEnv = "MUSTER_CHAOS_CLOCK"

// movedClock is added to package time of the programs under test. A time namespace does not move the clock that gives
// the date, and Go asks the kernel without libc, so a preloaded library does not work. The programs' own source is
// unchanged.
const movedClock = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var moved = func() *atomic.Int64 {
	path, ok := syscall.Getenv("` + clockEnv + `")
	if !ok {
		return new(atomic.Int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("` + clockEnv + `: " + err.Error())
	}
	b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("` + clockEnv + `: " + err.Error())
	}
	return (*atomic.Int64)(unsafe.Pointer(&b[0]))
}()
`

// programs builds the programs once for all tests, and returns their directory.
var programs = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(work, "bin")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if !*full {
		return dir, testproc.Build(dir)
	}
	file, err := overlay(dir)
	if err != nil {
		return "", err
	}
	return dir, testproc.Build(dir, "-overlay", file)
})

// program returns the path of a program.
func program(t *testing.T, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// overlay writes a package time with a movable clock, for `go build -overlay`. It recompiles the standard library and
// all dependencies, so it is for full size only.
func overlay(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(out)), "src/time")
	b, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(b), now) != 1 {
		return "", fmt.Errorf("%s/time.go: want %q in it, once", std, now)
	}
	changed, added := filepath.Join(dir, "time.txt"), filepath.Join(dir, "moved.txt")
	files, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(std, "time.go"):   changed,
		filepath.Join(std, "zmoved.go"): added,
	}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, errors.Join(
		os.WriteFile(changed, []byte(strings.Replace(string(b), now, now+"\tsec += moved.Load()\n", 1)), 0o600),
		os.WriteFile(added, []byte(movedClock), 0o600),
		os.WriteFile(file, files, 0o600),
	)
}
