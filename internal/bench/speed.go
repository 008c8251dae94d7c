package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Speed is what four small things cost on the machine, measured by one thread
// before anything else is started. A guest's neighbors decide what a node costs as
// much as the program does: two results can be compared as far as their speeds
// can.
type Speed struct {
	Verify  float64 `json:"machine_verify_us"`  // checking one P-256 signature: computing
	Read    float64 `json:"machine_read_ns"`    // one read of memory at random in 8 MB, each after the one before: caches, and who shares them
	Page    float64 `json:"machine_page_us"`    // the first write to a page of memory, usually of 4 kB: what a fault costs
	Syscall float64 `json:"machine_syscall_ns"` // one getppid: entering the kernel and leaving it
}

// What speed does, each some tens of milliseconds, five times of which the median
// counts.
const (
	speedTimes    = 5
	speedVerifies = 300
	speedReads    = 300_000
	speedRoom     = 8 << 20 // as much as a small share of a server's last cache
	speedPages    = 2000
	speedSyscalls = 30_000
)

// speed measures for about half a second.
func speed() (Speed, error) {
	verify, err := verifying()
	if err != nil {
		return Speed{}, fmt.Errorf("measure the machine: %w", err)
	}
	var failed error
	each := func(n int, do func() error) float64 {
		var took []time.Duration
		for range speedTimes {
			start := time.Now()
			if err := do(); err != nil {
				failed = fmt.Errorf("measure the machine: %w", err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		return float64(took[len(took)/2].Nanoseconds()) / float64(n)
	}
	chain := chained(speedRoom / 8)
	at := uint64(0)
	s := Speed{
		Verify: rounded(each(speedVerifies, verify)/1000, 10),
		Read: rounded(each(speedReads, func() error {
			for range speedReads {
				at = chain[at]
			}
			return nil
		}), 10),
		Page: rounded(each(speedPages, newPages)/1000, 100),
		Syscall: rounded(each(speedSyscalls, func() error {
			for range speedSyscalls {
				unix.Getppid()
			}
			return nil
		}), 1),
	}
	return s, failed
}

// verifying returns what checks speedVerifies signatures.
func verifying() (func() error, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte("machine"))
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		return nil, err
	}
	return func() error {
		for range speedVerifies {
			if !ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) {
				return errors.New("this machine computes wrong: a signature just made does not verify")
			}
		}
		return nil
	}, nil
}

// chained returns n places, each of which names the one to read next, in an order
// that no machine foresees: one way round through all of them, by Sattolo's shuffle.
func chained(n int) []uint64 {
	places := make([]uint64, n)
	for i := range places {
		places[i] = uint64(i)
	}
	order := mathrand.New(mathrand.NewPCG(1, 2)) //nolint:gosec // not a secret: the same on each machine
	for i := n - 1; i > 0; i-- {
		j := order.IntN(i)
		places[i], places[j] = places[j], places[i]
	}
	return places
}

// newPages writes to speedPages that are new to this process, once each.
func newPages() error {
	size := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, speedPages*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for i := 0; i < len(b); i += size {
		b[i] = 1
	}
	return unix.Munmap(b)
}
