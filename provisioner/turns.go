package provisioner

import (
	"runtime"
	"sync"
)

// A phase is a piece of the work on a request that takes a core for a while,
// and waits for nothing. Those nearer to the end of it are greater.
type phase int

const (
	phaseProve   phase = iota // token and certificate request: 50 to 100 µs; a token met for the first time, 100 more
	phaseDecide               // policy: 50 to 90 µs
	phaseIssue                // certificate: 80 µs
	phaseConfirm              // signature of a confirmation: 70 µs
	phases
)

// turns has as many requests compute at a time as there are cores, those first
// that are nearest to their end. If all did at once, everything else in the process
// that a request passes on its way (a dozen goroutines of the broker and of its
// client) would wait behind each of them, each time anew; and of two requests half
// done nobody has anything yet.
//
// Nobody waits for ever: those who go first have begun before, and end.
//
// It is for work that blocks nowhere: who has a turn and waits for another would
// stop everybody. The zero value lets nobody in; use newTurns. It is safe for
// concurrent use.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting [phases][]chan struct{} // each gets its turn by being closed; first come, first served
}

func newTurns() *turns { return &turns{free: runtime.GOMAXPROCS(0)} }

// take waits for a turn and returns what ends it, which is called once. Defer it:
// a panic must not keep the turn.
func (t *turns) take(f phase) (done func()) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return t.pass
	}
	turn := make(chan struct{})
	t.waiting[f] = append(t.waiting[f], turn)
	t.mu.Unlock()
	<-turn
	return t.pass
}

// pass gives a turn to whoever is nearest to the end.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := phases - 1; f >= 0; f-- {
		if q := t.waiting[f]; len(q) > 0 {
			close(q[0])
			q[0] = nil
			t.waiting[f] = q[1:]
			return
		}
	}
	t.free++
}
