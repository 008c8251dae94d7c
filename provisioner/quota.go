package provisioner

import (
	"fmt"
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
	PerSource int // by address
}

// maxQuotaKeys bounds the tables: past it they are emptied, which forgives what
// was counted so far rather than refusing strangers for others' sake.
const maxQuotaKeys = 100_000

type quotas struct {
	limits Quotas
	now    func() time.Time

	mu      sync.Mutex
	tokens  map[jwt.TokenID]*rate.Limiter // guarded by mu
	sources map[string]*rate.Limiter      // guarded by mu
}

func newQuotas(limits Quotas, now func() time.Time) quotas {
	return quotas{limits: limits, now: now,
		tokens: make(map[jwt.TokenID]*rate.Limiter), sources: make(map[string]*rate.Limiter)}
}

// take counts one new identity, or says which quota it would exceed. Nothing is
// counted then.
func (q *quotas) take(token jwt.TokenID, source string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	t := limiter(q.tokens, token, q.limits.PerToken)
	s := limiter(q.sources, source, q.limits.PerSource)
	if t != nil && t.TokensAt(now) < 1 {
		return fmt.Errorf("token %s has brought %d new identities in an hour, the limit", token, q.limits.PerToken)
	}
	if s != nil && s.TokensAt(now) < 1 {
		return fmt.Errorf("%d new identities from %s in an hour, the limit", q.limits.PerSource, source)
	}
	if t != nil {
		t.AllowN(now, 1)
	}
	if s != nil {
		s.AllowN(now, 1)
	}
	return nil
}

// limiter returns the limiter for k, or nil if there is no limit.
func limiter[K comparable](m map[K]*rate.Limiter, k K, perHour int) *rate.Limiter {
	if perHour == 0 {
		return nil
	}
	l := m[k]
	if l == nil {
		if len(m) >= maxQuotaKeys {
			clear(m)
		}
		l = rate.NewLimiter(rate.Limit(float64(perHour)/3600), perHour)
		m[k] = l
	}
	return l
}
