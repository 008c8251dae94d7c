package provisioner

import (
	"maps"
	"sync"
	"time"
)

// How often it is an event, and a line of the log, that one node was answered once more without a
// write, or refused though it has proven who it is. Whoever has its key can ask as fast as a connection takes it, and the
// events of all nodes share one log, of which the oldest go. Chosen: nobody waits for the event of
// an answer; a machine that cannot use the one it gets may ask for it each minute, for days, and be one of
// 100,000. Operators wait for the other two, of a node that they have commanded.
const (
	answeredAtOnce, answeredEvery = 5, 10 * time.Minute  // of requests for a certificate
	wordsAtOnce, wordsEvery       = 20, 30 * time.Second // of confirmations, complaints and renewals refused
)

// repeats bounds what one node has said of it. Make one with newRepeats. It is safe for
// concurrent use.
type repeats struct {
	atOnce int
	every  time.Duration

	mu   sync.Mutex
	said map[string]saidOf // guarded by mu: by node
}

// A saidOf is what was said of a node lately.
type saidOf struct {
	whole   time.Time // when as many can be said at once as ever
	leftOut int64     // since the last that was
}

func newRepeats(atOnce int, every time.Duration) *repeats {
	return &repeats{atOnce: atOnce, every: every, said: make(map[string]saidOf)}
}

// say reports whether e is to be said of its node at now, and if so, says in it how many were not
// since the last one that was.
func (r *repeats) say(e *Event, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known := r.said[e.Node]
	most := time.Duration(r.atOnce) * r.every
	if ahead := s.whole.Sub(now); ahead < 0 || ahead > most { // or the clock was set back
		s.whole = now
	}
	if s.whole.Sub(now) > most-r.every {
		s.leftOut++
		r.said[e.Node] = s
		return false
	}
	if !known && len(r.said) >= maxSeen {
		r.forget(now)
	}
	e.LeftOut = s.leftOut
	r.said[e.Node] = saidOf{whole: s.whole.Add(r.every)}
	return true
}

// forget drops the nodes of which as many can be said as ever. Where these are few, it begins
// anew, or it would soon be here again. The caller holds mu.
func (r *repeats) forget(now time.Time) {
	maps.DeleteFunc(r.said, func(_ string, s saidOf) bool { return !s.whole.After(now) && s.leftOut == 0 })
	if len(r.said) > maxSeen/2 {
		clear(r.said)
	}
}
