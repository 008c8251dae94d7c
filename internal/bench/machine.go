package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine says on what a table was measured, and with what.
func machine(dir string, nodes, rounds int) string {
	dir = cmp.Or(dir, os.TempDir())
	of := ""
	if rounds > 1 {
		of = fmt.Sprintf(" %d rounds, the median of each figure, of memory the most.", rounds)
	}
	return fmt.Sprintf("%s, %s nodes in each wave.%s %d cores of %s, %s of memory, Linux %s, %s under %s. %s, nats-server %s. In brackets: what is to be reached.\n",
		time.Now().UTC().Format(time.DateOnly), thousands(float64(nodes)), of, runtime.NumCPU(), procLine("/proc/cpuinfo", "model name"), memory(), kernel(), fileSystem(dir), dir,
		strings.Replace(runtime.Version(), "go", "Go ", 1), module("github.com/nats-io/nats-server/v2"))
}

// procLine returns the value of the first line "key : value" of a file.
func procLine(file, key string) string {
	b, _ := os.ReadFile(file) // without it, it is unknown
	for line := range bytes.Lines(b) {
		if k, v, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(k) == key {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return "an unknown kind"
}

func memory() string {
	var kib float64
	_, _ = fmt.Sscanf(procLine("/proc/meminfo", "MemTotal"), "%f kB", &kib)
	return fmt.Sprintf("%.0f GB", kib*1024/1e9)
}

func kernel() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // cannot fail with this argument
	return unix.ByteSliceToString(u.Release[:])
}

// module returns the version of a module that is linked in.
func module(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "of an unknown version"
}
