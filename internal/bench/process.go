package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// startYielding starts cmd as a process that takes no core from another when
// something arrives for it, but waits for its turn (SCHED_BATCH, sched(7)). Drivers
// stand for machines elsewhere, which interrupt nobody: without it each reply
// woke one in the middle of what the serving process did, 120,000 switches in a wave of
// 20,000 new connections in place of 38,000, for 4 % of the serving CPU and a quarter
// more of the drivers' (measured). Where a sandbox forbids it, cmd runs as any other.
func startYielding(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this, and cmd inherits from it
		yield()
		started <- cmd.Start()
	}()
	return <-started
}

// processCPU is what a process has used since its start, in nanoseconds, from
// its CPU clock: /proc/PID/stat counts in hundredths of a second. The id of
// that clock is made as in clock_getcpuclockid(3).
func processCPU(pid int) (int64, error) {
	const sched = 2 // CPUCLOCK_SCHED of linux/posix-timers.h: what the scheduler counted
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("no such process: %w", err)
	}
	return t.Nano(), nil
}

// usage is what processes have used since their start.
type usage struct {
	cpu     int64 // nanoseconds
	peak    int64 // bytes of memory, each at its own worst
	memory  int64 // bytes now
	written int64 // bytes sent to the disk
}

// usageOf adds up processes.
func usageOf(pids []int) (usage, error) {
	var u usage
	for _, pid := range pids {
		cpu, err := processCPU(pid)
		if err != nil {
			return usage{}, fmt.Errorf("process %d: %w", pid, err)
		}
		peak, err := procNumber(pid, "status", "VmHWM")
		if err != nil {
			return usage{}, err
		}
		memory, err := procNumber(pid, "status", "VmRSS")
		if err != nil {
			return usage{}, err
		}
		written, err := procNumber(pid, "io", "write_bytes")
		if os.IsPermission(err) {
			written = 0 // another user's process does not say
		} else if err != nil {
			return usage{}, err
		}
		u.cpu += cpu
		u.peak += peak << 10 // the kernel's kB are KiB
		u.memory += memory << 10
		u.written += written
	}
	return u, nil
}

// procNumber reads a line like "VmHWM:   123 kB" of a file below /proc.
func procNumber(pid int, file, key string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := strings.CutPrefix(string(line), key+":"); ok {
			return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, key)
}
