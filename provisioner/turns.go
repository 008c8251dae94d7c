package provisioner

import (
	"runtime"
	"sync"
)

// A phase is a piece of the work on a request that takes a core for a while,
// and waits for nothing. Those nearer to the end of it are greater.
type phase int

const (
	phaseAdmit   phase = iota // connection to a broker outside of this process: 250 µs
	phaseProve                // token and certificate request: 50 to 100 µs; a token met for the first time, 100 more
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
// Nobody waits for ever: those who go first have begun before, and end. Only who is admitted
// makes requests, so admissions get one turn of [admitShare] whatever else waits, and no more as
// long as it does: as many as requests are done with.
//
// It is for work that blocks nowhere: who has a turn and waits for another would
// stop everybody. The zero value lets nobody in; use newTurns. It is safe for
// concurrent use.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting [phases][]chan struct{} // each gets its turn by being closed; first come, first served
	passed  int                     // turns since the last that was for an admission
}

// admitShare is one over the share of admissions. A node that is admitted needs four turns more,
// of about as much time together.
const admitShare = 5

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
	if t.passed++; t.passed >= admitShare && t.give(phaseAdmit) {
		return
	}
	for f := phases - 1; f >= 0; f-- {
		if t.give(f) {
			return
		}
	}
	t.free++
}

// give gives a turn to the first who waits in a phase, and reports whether anybody does.
// The caller holds mu.
func (t *turns) give(f phase) bool {
	q := t.waiting[f]
	if len(q) == 0 {
		return false
	}
	close(q[0])
	q[0] = nil
	t.waiting[f] = q[1:]
	if f == phaseAdmit {
		t.passed = 0
	}
	return true
}

// AdmitTurn waits for a turn at computing, among those of requests, and returns what ends it:
// for whoever decides over connections on behalf of brokers in other processes, which
// would leave nothing for the requests of those that are connected. Nothing that waits
// must be done in it. A second call of what it returns does nothing.
func (p *Provisioner) AdmitTurn() (done func()) { return sync.OnceFunc(p.turns.take(phaseAdmit)) }
