package provisioner

import (
	"time"

	"muster/internal/limit"
	"muster/provisioner/events"
)

// A key holder can repeat requests without end, and all nodes share one event log.
const (
	repliesBurst, repliesInterval   = 5, 10 * time.Minute
	messagesBurst, messagesInterval = 20, 30 * time.Second
)

// repeatLimits bounds events about repeated requests, per identity.
type repeatLimits struct {
	replies  *limit.Keyed[string] // certificate returned again
	messages *limit.Keyed[string] // repeated confirmations, unusable offers, refused renewals
}

func newRepeatLimits(now func() time.Time) repeatLimits {
	return repeatLimits{
		replies: limit.NewKeyed[string](limit.Rate{
			PerSecond: 1 / repliesInterval.Seconds(),
			Burst:     repliesBurst,
			Now:       now,
		}),
		messages: limit.NewKeyed[string](limit.Rate{
			PerSecond: 1 / messagesInterval.Seconds(),
			Burst:     messagesBurst,
			Now:       now,
		}),
	}
}

// allowRepeat returns whether to emit e, and sets e.LeftOut.
func allowRepeat(of *limit.Keyed[string], e *events.Event) bool {
	leftOut, ok := of.Take(e.Node)
	if ok {
		e.LeftOut = leftOut
	}
	return ok
}
