package chaos_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// clockEnv names a file of eight bytes, by which the clock of a process that
// was built by [binaries] can be moved while it runs: so many seconds, in the
// machine's byte order.
const clockEnv = "MUSTER_CHAOS_CLOCK"

// movedClock is added to package time of the programs under test. A time
// namespace moves only the clocks that nobody reads the date from, and Go asks
// the kernel without libc, so that no preloaded library comes in between. The
// programs' own source is as it is shipped.
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

// A version is which protocol a build of the programs speaks.
type version int

// The protocol of this tree, and the next one, which is the same but for its
// number.
const (
	present version = 1
	next    version = 2
)

// built are the directories of what was built, by version.
var built struct {
	mu   sync.Mutex
	dirs map[version]string
}

// program returns the path of a program of this version. Each version is built
// once for all tests.
func program(t *testing.T, name string, v version) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	dir, ok := built.dirs[v]
	if !ok {
		dir = filepath.Join(work, fmt.Sprintf("bin%d", v))
		if err := build(dir, v); err != nil {
			t.Fatal(err)
		}
		if built.dirs == nil {
			built.dirs = map[version]string{}
		}
		built.dirs[v] = dir
	}
	return filepath.Join(dir, name)
}

// build builds the programs into dir, with a clock that can be moved.
func build(dir string, v version) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(out)), "src/time")
	wire, err := filepath.Abs("../wire/messages.go")
	if err != nil {
		return err
	}
	overlay := map[string]string{}
	replace := func(path, old, replacement string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.Count(string(b), old) != 1 {
			return fmt.Errorf("%s: want %q in it, once", path, old)
		}
		overlay[path] = filepath.Join(dir, strings.ReplaceAll(filepath.Base(path), ".go", ".txt"))
		return os.WriteFile(overlay[path], []byte(strings.Replace(string(b), old, replacement, 1)), 0o600)
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if err := replace(filepath.Join(std, "time.go"), now, now+"\tsec += moved.Load()\n"); err != nil {
		return err
	}
	added := filepath.Join(dir, "moved.txt")
	overlay[filepath.Join(std, "zmoved.go")] = added
	if err := os.WriteFile(added, []byte(movedClock), 0o600); err != nil {
		return err
	}
	if v != present {
		if err := replace(wire, fmt.Sprintf("const Version = %d\n", present), fmt.Sprintf("const Version = %d\n", v)); err != nil {
			return err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-overlay", file, "-o", dir+"/", "muster/cmd/muster", "muster/cmd/muster-server")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	return nil
}
