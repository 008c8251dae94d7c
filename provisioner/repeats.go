package provisioner

import (
	"time"

	"golang.org/x/time/rate"

	"muster/internal/limit"
	"muster/provisioner/events"
)

// How often it is an event, and a line of the log, that one node was answered once more without a write, or refused
// though it has proven its identity. The holder of its key can ask as fast as a connection takes it, and the events of
// all nodes share one log, of which the oldest go. A machine that cannot use its answer may ask each minute, for days,
// and be one of 100,000. Operators wait for the other two, of a node that they have commanded.
const (
	answeredAtOnce, answeredEvery = 5, 10 * time.Minute  // of requests for a certificate
	wordsAtOnce, wordsEvery       = 20, 30 * time.Second // of confirmations, complaints and renewals refused
)

// said bounds the events of what is said again and again, of each node by its identity.
type said struct {
	answered *limit.Keyed[string] // once more, with a certificate
	words    *limit.Keyed[string] // what nodes confirm again, or cannot use, and renewals that are refused
	paused   *rate.Limiter        // a fleet that waits for the end of a pause would push its own history out of the events
}

func newSaid(now func() time.Time) said {
	return said{
		answered: limit.NewKeyed[string](limit.Rate{PerSecond: 1 / answeredEvery.Seconds(), Burst: answeredAtOnce, Now: now}),
		words:    limit.NewKeyed[string](limit.Rate{PerSecond: 1 / wordsEvery.Seconds(), Burst: wordsAtOnce, Now: now}),
		paused:   rate.NewLimiter(reportsPerSecond, reportsAtOnce),
	}
}

// say reports whether e is to be said of its node, and if so, notes in it how many were not
// since the last one that was.
func say(of *limit.Keyed[string], e *events.Event) bool {
	leftOut, ok := of.Take(e.Node)
	if ok {
		e.LeftOut = leftOut
	}
	return ok
}
