package policies

import (
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"
	"golang.org/x/sys/unix"
)

// mostTimeouts is how many time-outs an evaluation has if the process gets no CPU
// meanwhile; chosen, so that with the default a node still waits for its answer then.
const mostTimeouts = 4

// endLate ends an evaluation when its time is up, unless stop is called before: after a time-out,
// if the process had half of the second half of it in CPU, and else once it has had as much,
// after mostTimeouts at most. What got no time to compute, or was suspended (SIGSTOP, a guest whose
// host is busy), has not shown that it is slow. used is the CPU of the process, which is not looked at
// for what has ended soon: that takes 10 µs.
func endLate(evaluation topdown.Cancel, timeout time.Duration, used func() time.Duration) (stop func() bool) {
	var begun time.Duration
	halves := 0
	var late func()
	late = func() {
		halves++
		switch {
		case halves == 1:
			begun = used()
		case halves == 2*mostTimeouts || used()-begun >= timeout/4:
			evaluation.Cancel()
			return
		}
		time.AfterFunc(timeout/2, late) // nobody stops this one: to end what has ended is harmless
	}
	return time.AfterFunc(timeout/2, late).Stop
}

// processTime returns the CPU that the process has used.
func processTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0 // never on Linux: then each evaluation has mostTimeouts
	}
	return time.Duration(t.Nano())
}
