package natsapi

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds on what a busy node is told. The node adds jitter and caps the wait
// itself.
const (
	minRetryAfter = 500 * time.Millisecond
	maxRetryAfter = 5 * time.Minute

	// startRate is assumed until something has been measured: the slowest disk
	// measured gives 1,000 requests a second.
	startRate = 1000.0
)

// A spreader tells those who find no room when to come back, one slot after the
// other at the rate at which requests are really finished. So however many ask
// at once, they come back at the pace that can be served instead of all
// together.
type spreader struct {
	now      func() time.Time
	finished atomic.Int64

	mu   sync.Mutex
	rate float64   // guarded by mu: requests a second
	slot time.Time // guarded by mu: the last one given out
}

func newSpreader(now func() time.Time) *spreader { return &spreader{now: now, rate: startRate} }

// done counts a finished request.
func (s *spreader) done() { s.finished.Add(1) }

// run measures the rate once a second, smoothed over about five, until ctx is
// done. Seconds in which nobody had to be sent away say nothing about what
// could be served, except that it is at least as much as was.
func (s *spreader) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.measured(float64(s.finished.Swap(0)))
		}
	}
}

// measured takes in the number of requests finished in one second.
func (s *spreader) measured(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if crowded := s.slot.After(s.now()); crowded || rate > s.rate {
		s.rate = max(0.8*s.rate+0.2*rate, 1)
	}
}

// next gives the next slot out, as the time until then.
func (s *spreader) next() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.slot.Before(now) {
		s.slot = now
	}
	s.slot = s.slot.Add(time.Duration(float64(time.Second) / s.rate))
	wait := s.slot.Sub(now)
	if wait > maxRetryAfter {
		// Too many for slots of their own: anywhere in the second half.
		s.slot = now.Add(maxRetryAfter)
		wait = maxRetryAfter/2 + rand.N(maxRetryAfter/2) //nolint:gosec // spreads load, hides nothing
	}
	return max(wait, minRetryAfter)
}
