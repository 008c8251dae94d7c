package webhook

import (
	"math/rand/v2"
	"time"
)

// A Schedule doubles the wait between tries from First to Max, give or take a quarter, and gives up after about Total.
type Schedule struct{ First, Max, Total time.Duration }

// DefaultSchedule lets an endpoint be down over a weekend. A repaired endpoint gets its events within ten minutes.
var DefaultSchedule = Schedule{First: 5 * time.Second, Max: 10 * time.Minute, Total: 72 * time.Hour}

// Planned returns the wait after the n-th try, from 1, without randomness.
func (s Schedule) Planned(n int) time.Duration {
	wait := s.First
	for ; n > 1 && wait < s.Max; n-- {
		wait *= 2
	}
	return min(wait, s.Max)
}

// Wait returns the wait after the n-th try, from 1. A longer retryAfter of the endpoint counts up to Max.
func (s Schedule) Wait(n int, retryAfter time.Duration) time.Duration {
	const quarter = 4
	wait := s.Planned(n)
	//nolint:gosec // spreads load, hides nothing
	wait += time.Duration((rand.Float64()*2 - 1) * float64(wait) / quarter)
	return max(wait, min(retryAfter, s.Max))
}

// Tries returns how many tries an event gets. Tries are counted, not timed, since clocks jump.
func (s Schedule) Tries() int {
	n := 1
	for spent := time.Duration(0); spent < s.Total; n++ {
		spent += s.Planned(n)
	}
	return n
}
