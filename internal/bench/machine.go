package bench

import (
	"errors"
	"fmt"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

type usage struct {
	cpu     int64
	peak    int64 // bytes, the sum of each process's peak
	memory  int64
	written int64
}

func usageOf(pids []int) (u usage, err error) {
	for _, pid := range pids {
		// Read the process's CPU clock (id as in clock_getcpuclockid(3)), since /proc counts in hundredths of a second.
		const sched = 2
		var t unix.Timespec
		cerr := unix.ClockGettime(int32(^pid<<3|sched), &t)
		p, perr := procfs.NewProc(pid)
		status, serr := p.NewStatus()
		io, ierr := p.IO()
		if err := errors.Join(cerr, perr, serr, ierr); err != nil {
			return usage{}, fmt.Errorf("process %d: %w", pid, err)
		}
		u.cpu += t.Nano()
		u.peak += int64(status.VmHWM)
		u.memory += int64(status.VmRSS)
		u.written += int64(io.WriteBytes)
	}
	return u, nil
}

func ownCPU() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail with these arguments
	return u.Utime.Nano() + u.Stime.Nano()
}
