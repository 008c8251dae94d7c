package natsapi

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds on what a busy node is told. The node caps the wait itself.
const (
	minRetryAfter = 500 * time.Millisecond
	maxRetryAfter = 5 * time.Minute

	// firstRetryAfter bounds it while next to nothing has been measured. Chosen:
	// if those who were told too short a time come before those who were let in
	// are served, a storm of 20,000 does not end with 2 s, and does with 4.
	firstRetryAfter = 5 * time.Second

	// startRate is assumed until something has been measured: the slowest disk
	// measured gives 1,000 requests a second.
	startRate = 1000.0

	// measureEvery is the time between two measurements; chosen, 250 requests of
	// the slowest disk.
	measureEvery = 250 * time.Millisecond

	// newest is the weight of the newest measurement: the others' is a third
	// after a second.
	newest = 0.25

	// overcommit is how many are told to come back for each that can be served.
	// Were it one, what had once been measured too low would stay so: nobody
	// came who could show that more can be done. A node that comes too early
	// costs a connection, a third of what serving it does.
	overcommit = 1.25
)

// A spreader tells those who find no room when to come back, one after the other
// at the rate at which requests are really finished. So however many ask at once,
// they come back at the pace that can be served instead of all together.
//
// After a start nothing is known about that pace, and what is measured first is
// of a process that has thousands of connections to accept beside. So nobody is
// told to wait for longer than it has been measured; those who would have to are
// asked to come again until then, and then find a better estimate.
type spreader struct {
	now      func() time.Time
	finished atomic.Int64 // since the last measurement
	stalled  atomic.Int64 // since then, by a store that does not answer

	mu       sync.Mutex
	rate     float64       // guarded by mu: requests a second
	measured time.Duration // guarded by mu: how long there was something to measure
	told     int           // guarded by mu: how many found no room since the last measurement
	waiting  float64       // guarded by mu: how many were told to come back, and are not due yet
	at       time.Time     // guarded by mu: when waiting was that
}

func newSpreader(now func() time.Time) *spreader { return &spreader{now: now, rate: startRate} }

// done counts a finished request, or one that a store which does not answer has
// stalled.
func (s *spreader) done(stalled bool) {
	if stalled {
		s.stalled.Add(1)
		return
	}
	s.finished.Add(1)
}

// run measures the rate until ctx is done.
func (s *spreader) run(ctx context.Context) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := time.Now()
			s.measure(s.finished.Swap(0), s.stalled.Swap(0), now.Sub(last))
			last = now
		}
	}
}

// measure takes in the number of requests finished and stalled in some time.
//
// Time in which everybody found room says nothing about what could be served,
// except that it is at least as much as was. Time in which nothing was finished,
// or as many stalled, says nothing either: what the store does afterwards it does at
// its old rate. When stalled ones counted as finished, 20,000 nodes whose cluster had
// lost its leader for nine seconds came back at 50 a second for the next thirty, and
// then not at all for fifty: 142 and 71 s until all were in, 51 and 42 since (make chaos).
func (s *spreader) measure(finished, stalled int64, in time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass()
	crowded := s.told > 0
	s.told = 0
	if finished <= stalled || in <= 0 {
		return
	}
	rate := float64(finished) / in.Seconds()
	if !crowded && rate <= s.rate {
		return
	}
	weight := newest
	if s.measured == 0 {
		weight = 1 // whatever it is, it is better than an assumption
	}
	s.rate = max((1-weight)*s.rate+weight*rate, 1)
	if crowded {
		s.measured = min(s.measured+in, maxRetryAfter)
	}
}

// next returns when one who finds no room is to come back.
func (s *spreader) next() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass()
	s.told++
	longest := max(s.measured, firstRetryAfter)
	wait := time.Duration((s.waiting + 1) / (s.rate * overcommit) * float64(time.Second))
	if wait > longest {
		return longest/2 + rand.N(longest/2) //nolint:gosec // spreads load, hides nothing
	}
	s.waiting++
	return max(wait, minRetryAfter)
}

// soon returns when one who finds no room is to come back before those who have
// not begun: what is nearly finished goes first.
func (s *spreader) soon() time.Duration {
	return minRetryAfter + rand.N(minRetryAfter) //nolint:gosec // spreads load, hides nothing
}

// pass brings waiting to the present. Called with mu held.
func (s *spreader) pass() {
	now := s.now()
	if passed := now.Sub(s.at); passed > 0 {
		s.waiting = max(0, s.waiting-s.rate*overcommit*passed.Seconds())
	}
	s.at = now // also after the clock was set back
}
