package provisioner

import (
	"time"

	"golang.org/x/time/rate"

	"muster/internal/limit"
	"muster/provisioner/events"
)

// A key holder can repeat requests without end, and all nodes share one event log. 100,000 broken nodes may ask each
// minute for days; operators that commanded a node wait for the other messages.
const (
	answeredAtOnce, answeredEvery = 5, 10 * time.Minute
	wordsAtOnce, wordsEvery       = 20, 30 * time.Second
)

// repeatLimits bounds events about repeated requests, per identity.
type said struct {
	answered *limit.Keyed[string] // certificate returned again
	words    *limit.Keyed[string] // repeated confirmations, unusable offers, refused renewals
	paused   *rate.Limiter        // of all nodes together
}

func newSaid(now func() time.Time) said {
	return said{
		answered: limit.NewKeyed[string](limit.Rate{PerSecond: 1 / answeredEvery.Seconds(), Burst: answeredAtOnce, Now: now}),
		words:    limit.NewKeyed[string](limit.Rate{PerSecond: 1 / wordsEvery.Seconds(), Burst: wordsAtOnce, Now: now}),
		paused:   rate.NewLimiter(reportsPerSecond, reportsAtOnce),
	}
}

// allowRepeat reports whether e is reported, and sets e.LeftOut.
func say(of *limit.Keyed[string], e *events.Event) bool {
	leftOut, ok := of.Take(e.Node)
	if ok {
		e.LeftOut = leftOut
	}
	return ok
}
