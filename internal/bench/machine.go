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

// Speed is the duration of two operations, measured on one thread before the run. Results from machines with similar
// speeds are comparable.
type Speed struct {
	Verify float64 `json:"machine_verify_us"` // checking a P-256 signature
	Fsync  float64 `json:"fsync_p50_us"`      // a synced write of 512 bytes, about a small record
}

// the median counts
const speedRounds = 5

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

// procNumber reads a line like "VmHWM: 123 kB" of a file below /proc.
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

// ownCPU returns this process's CPU time in nanoseconds.
func ownCPU() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail with these arguments
	return u.Utime.Nano() + u.Stime.Nano()
}

// lowerPriority gives this process's threads SCHED_BATCH (sched(7)) until restore is called. Simulated nodes must not
// preempt serving processes: at normal priority, each reply wakes a thread, which costs 4 % of the serving CPU and a
// quarter of the nodes' (measured with new connections). If a sandbox forbids the call, the priority stays. Child
// processes inherit it.
func lowerPriority() (restore func()) {
	schedule(schedBatch)
	return func() { schedule(schedNormal) }
}
