package provisioner

import (
	"fmt"
	"net/netip"
	"time"

	"muster/internal/limit"
	"muster/jwt"
	"muster/provisioner/events"
)

// Quotas bound the new identities per hour, since token holders can invent names. 0 means no bound. Each process
// counts for itself.
type Quotas struct {
	PerToken  int // also of all nodes without one
	PerSource int // by address, or the /64 of an IPv6 address
}

type quotas struct {
	limits  Quotas
	tokens  *limit.Keyed[jwt.TokenID]
	sources *limit.Keyed[netip.Prefix] // nil: no bound
}

func newQuotas(limits Quotas, now func() time.Time) quotas {
	return quotas{
		limits:  limits,
		tokens:  hourly[jwt.TokenID](limits.PerToken, now),
		sources: hourly[netip.Prefix](limits.PerSource, now),
	}
}

func hourly[K comparable](n int, now func() time.Time) *limit.Keyed[K] {
	if n == 0 {
		return nil
	}
	return limit.NewKeyed[K](limit.Rate{
		PerSecond: float64(n) / 3600,
		Burst:     n,
		Keys:      1_000_000,
		Now:       now,
	})
}

func (q *quotas) take(token jwt.TokenID, source string) error {
	key := limit.Source(source)
	if !q.tokens.Allow(token) {
		if token == "" {
			return fmt.Errorf("%d new nodes without a token within an hour, the limit", q.limits.PerToken)
		}
		return fmt.Errorf("token %s has enrolled %d new nodes within an hour, the limit", token, q.limits.PerToken)
	}
	if !q.sources.Allow(key) {
		q.tokens.Refund(token)
		return fmt.Errorf("%d new nodes from %s within an hour, the limit", q.limits.PerSource,
			limit.SourceName(key, source))
	}
	return nil
}

func (q *quotas) refund(token jwt.TokenID, source string) {
	q.tokens.Refund(token)
	q.sources.Refund(limit.Source(source))
}

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
		replies:  keyed[string](repliesBurst, repliesInterval, 0, now),
		messages: keyed[string](messagesBurst, messagesInterval, 0, now),
	}
}

// keyed allows burst at once, and one more after each interval. All keys together may have all times as much.
func keyed[K comparable](burst int, interval time.Duration, all float64, now func() time.Time) *limit.Keyed[K] {
	return limit.NewKeyed[K](limit.Rate{
		PerSecond: 1 / interval.Seconds(),
		Burst:     burst,
		All:       all,
		Now:       now,
	})
}

// allowRepeat returns whether to emit e, and sets e.LeftOut.
func allowRepeat(of *limit.Keyed[string], e *events.Event) bool {
	leftOut, ok := of.Take(e.Node)
	if ok {
		e.LeftOut = leftOut
	}
	return ok
}
