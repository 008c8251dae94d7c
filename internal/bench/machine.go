package bench

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Speed is what two small things cost on the machine, measured by one thread before anything else is started. Two
// results can be compared as far as their speeds can.
type Speed struct {
	Verify float64 `json:"machine_verify_us"` // checking one P-256 signature: computing
	Fsync  float64 `json:"fsync_p50_us"`      // a write of 512 bytes, about a small record, synced
}

// speedRounds is how often each is measured; the median counts.
const speedRounds = 5

// speed measures. dir is on the disk that is measured.
func speed(dir string) (s Speed, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return s, err
	}
	digest := sha256.Sum256([]byte("machine"))
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		return s, err
	}
	s.Verify = rounded(timed(300, func() { ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) })/1000, 10)

	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return s, err
	}
	block := make([]byte, 512)
	s.Fsync = rounded(timed(10, func() {
		_, werr := f.Write(block)
		err = errors.Join(err, werr, f.Sync())
	})/1000, 10)
	return s, errors.Join(err, f.Close())
}

// timed returns how many nanoseconds do takes when it is called n times.
func timed(n int, do func()) float64 {
	var took []time.Duration
	for range speedRounds {
		start := time.Now()
		for range n {
			do()
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / float64(n)
}

// usage is what processes have used since their start.
type usage struct {
	cpu     int64 // nanoseconds
	peak    int64 // bytes of memory, each at its own peak
	memory  int64 // bytes now
	written int64 // bytes sent to the disk
}

// usageOf adds up processes.
func usageOf(pids []int) (u usage, err error) {
	for _, pid := range pids {
		// The process's CPU clock, whose id is made as in clock_getcpuclockid(3): /proc counts in hundredths of a second.
		const sched = 2 // CPUCLOCK_SCHED of linux/posix-timers.h
		var t unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
			return usage{}, fmt.Errorf("process %d: %w", pid, err)
		}
		u.cpu += t.Nano()
		for _, n := range []struct {
			file, key string
			unit      int64
			sum       *int64
		}{
			{"status", "VmHWM", 1024, &u.peak},
			{"status", "VmRSS", 1024, &u.memory},
			{"io", "write_bytes", 1, &u.written},
		} {
			got, err := procNumber(pid, n.file, n.key)
			if err != nil {
				return usage{}, err
			}
			*n.sum += got * n.unit
		}
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

// ownCPU is what this process has used, in nanoseconds.
func ownCPU() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail with these arguments
	return u.Utime.Nano() + u.Stime.Nano()
}

// yield has the threads of this process wait for their turn (SCHED_BATCH, sched(7)) until restore is called. The
// nodes stand for machines elsewhere, which interrupt no serving process: without this, each reply wakes a thread in
// the middle of serving, which costs 4 % of the serving CPU and a quarter of the nodes' (measured with new
// connections). Where a sandbox forbids it, nothing changes. A process that is started meanwhile inherits it.
func yield() (restore func()) {
	schedule(schedBatch)
	return func() { schedule(schedNormal) }
}
