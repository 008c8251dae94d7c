package webhook

import (
	"math/rand/v2"
	"time"
)

// A Schedule says when an event is tried again. The waits grow from First, each
// twice the one before, to Most; after about Total the event is given up. Each
// wait is up to a quarter longer or shorter than that, by chance.
type Schedule struct{ First, Most, Total time.Duration }

// DefaultSchedule is what [Config] takes if nothing else is said. First is that of
// Standard Webhooks' example, and Total of its length, so that an endpoint can be
// away over a weekend. Most is chosen, far below the hours of that example: an
// operator who has mended the endpoint gets what was missed within ten minutes.
var DefaultSchedule = Schedule{First: 5 * time.Second, Most: 10 * time.Minute, Total: 72 * time.Hour}

// Planned is how long to wait after the n-th try, n from 1, but for chance.
func (s Schedule) Planned(n int) time.Duration {
	wait := s.First
	for ; n > 1 && wait < s.Most; n-- {
		wait *= 2
	}
	return min(wait, s.Most)
}

// Wait is how long to wait after the n-th try, n from 1. An endpoint that says when it wants
// to be asked again is believed, up to Most.
func (s Schedule) Wait(n int, retryAfter time.Duration) time.Duration {
	const quarter = 4
	wait := s.Planned(n)
	wait += time.Duration((rand.Float64()*2 - 1) * float64(wait) / quarter) //nolint:gosec // spreads load, hides nothing
	return max(wait, min(retryAfter, s.Most))
}

// Tries is how often an event is tried. It is counted in tries and not in time,
// since the log keeps how often an event has come, and clocks jump.
func (s Schedule) Tries() int {
	n := 1
	for spent := time.Duration(0); spent < s.Total; n++ {
		spent += s.Planned(n)
	}
	return n
}
