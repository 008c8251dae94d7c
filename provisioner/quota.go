package provisioner

import (
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"muster/jwt"
)

// Quotas bound how many identities that were never seen before are let in per
// hour, since whoever has a token can make names up. Both allow a burst of a
// whole hour's worth; 0 means no bound. They are counted in each process on
// its own and start anew with it.
type Quotas struct {
	PerToken  int // by token id
	PerSource int // by address, or the /64 of an IPv6 address
}

// sweepQuotas is the size at which a table is cleaned for the first time of
// those who have their whole quota back. Nobody who is counted is forgotten, so
// a table is as long as the identities that were let in within the hour before
// make it.
const sweepQuotas = 10_000

type quotas struct {
	limits Quotas
	now    func() time.Time

	mu      sync.Mutex
	tokens  limiters[jwt.TokenID]  // guarded by mu
	sources limiters[netip.Prefix] // guarded by mu: by sourceKey
}

// limiters are limiters by key, all of the same rate.
type limiters[K comparable] struct {
	perHour int // 0: no limit
	of      map[K]*rate.Limiter
	sweepAt int // size at which to look for keys to forget
}

func newLimiters[K comparable](perHour int) limiters[K] {
	return limiters[K]{perHour: perHour, of: make(map[K]*rate.Limiter), sweepAt: sweepQuotas}
}

func newQuotas(limits Quotas, now func() time.Time) quotas {
	return quotas{limits: limits, now: now,
		tokens: newLimiters[jwt.TokenID](limits.PerToken), sources: newLimiters[netip.Prefix](limits.PerSource)}
}

// take counts one new identity, or says which quota it would exceed. Nothing is
// counted then.
func (q *quotas) take(token jwt.TokenID, source string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	key := sourceKey(source)
	t, s := q.tokens.get(token, now), q.sources.get(key, now)
	if t != nil && t.TokensAt(now) < 1 {
		return fmt.Errorf("token %s has brought %d new identities in an hour, the limit", token, q.limits.PerToken)
	}
	if s != nil && s.TokensAt(now) < 1 {
		return fmt.Errorf("%d new identities from %s in an hour, the limit", q.limits.PerSource, sourceName(key, source))
	}
	if t != nil {
		t.AllowN(now, 1)
	}
	if s != nil {
		s.AllowN(now, 1)
	}
	return nil
}

// giveBack takes back what take counted: the identity was not let in after all.
func (q *quotas) giveBack(token jwt.TokenID, source string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for _, l := range []*rate.Limiter{q.tokens.get(token, now), q.sources.get(sourceKey(source), now)} {
		if l != nil {
			l.AllowN(now, -1)
		}
	}
}

// get returns the limiter for k, or nil if there is no limit.
func (m *limiters[K]) get(k K, now time.Time) *rate.Limiter {
	if m.perHour == 0 {
		return nil
	}
	l := m.of[k]
	if l == nil {
		if len(m.of) >= m.sweepAt {
			m.sweep(now)
		}
		l = rate.NewLimiter(rate.Limit(float64(m.perHour)/3600), m.perHour)
		m.of[k] = l
	}
	return l
}

// sweep forgets the limiters that are full: a new one would be the same.
func (m *limiters[K]) sweep(now time.Time) {
	maps.DeleteFunc(m.of, func(_ K, l *rate.Limiter) bool { return l.TokensAt(now) >= float64(m.perHour) })
	m.sweepAt = max(sweepQuotas, 2*len(m.of))
}

// sourceName is a source as it is counted, for people.
func sourceName(key netip.Prefix, source string) string {
	switch {
	case !key.IsValid():
		return fmt.Sprintf("%.60q", source)
	case key.IsSingleIP():
		return key.Addr().String()
	}
	return key.String()
}
