package limit

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Limits of the wait that a refused caller is told.
const (
	minRetryAfter = 500 * time.Millisecond
	maxRetryAfter = 5 * time.Minute

	// firstRetryAfter is the longest wait after a start, for which 2 s are too short (20,000 nodes).
	firstRetryAfter = 5 * time.Second

	// per second, before measurements: a disk with 1 ms per write
	startRate = 1000.0

	// A measurement that took more than maxMeasure is discarded: there was nothing to do.
	measureFor   = 250 * time.Millisecond
	maxMeasure   = 4 * measureFor
	newestWeight = 0.25

	// overcommit keeps a rate from staying too low after a low measurement.
	overcommit = 1.25
)

// Backlog tells refused callers when to come back, at the measured rate of work. It is safe for concurrent use.
type Backlog struct {
	now func() time.Time

	mu          sync.Mutex    // guards the rest
	rate        float64       // finished per second
	measuredFor time.Duration // total time of measurements
	waiting     float64       // callers that are not due yet
	updated     time.Time     // time of waiting

	began    time.Time // of the present measurement
	finished int       // since then
	deferred int       // since then
	stalled  bool      // discard the present measurement
}

// NewBacklog returns a Backlog. A nil now is [time.Now].
func NewBacklog(now func() time.Time) *Backlog {
	if now == nil {
		now = time.Now
	}
	return &Backlog{
		now:     now,
		rate:    startRate,
		updated: now(),
		began:   now(),
	}
}

// Done counts finished work.
func (b *Backlog) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.measure()
	b.finished++
}

// Stalled discards the present measurement.
func (b *Backlog) Stalled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.measure()
	b.stalled = true
}

// Next returns when a refused caller is to come back.
func (b *Backlog) Next() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.measure()
	b.deferred++
	longest := min(max(b.measuredFor, firstRetryAfter), maxRetryAfter)
	wait := time.Duration((b.waiting + 1) / (b.rate * overcommit) * float64(time.Second))
	if wait > longest {
		return longest/2 + rand.N(longest/2) //nolint:gosec // spreads load, hides nothing
	}
	b.waiting++
	return max(wait, minRetryAfter)
}

// Soon is a short Next, for nearly finished work.
func (b *Backlog) Soon() time.Duration {
	return minRetryAfter + rand.N(minRetryAfter) //nolint:gosec // spreads load, hides nothing
}

// Without refused callers a measurement can only raise the rate. The caller holds mu.
func (b *Backlog) measure() {
	now := b.now()
	if passed := now.Sub(b.updated); passed > 0 {
		b.waiting = max(0, b.waiting-b.rate*overcommit*passed.Seconds())
	}
	b.updated = now // also after the clock was set back
	in := now.Sub(b.began)
	if in >= 0 && in < measureFor {
		return
	}
	crowded, measured := b.deferred > 0, float64(b.finished)/in.Seconds()
	if usable := in > 0 && in < maxMeasure && b.finished > 0 && !b.stalled; usable && (crowded || measured > b.rate) {
		weight := newestWeight
		if b.measuredFor == 0 {
			weight = 1 // better than the assumption
		}
		b.rate = max((1-weight)*b.rate+weight*measured, 1)
		if crowded {
			b.measuredFor = min(b.measuredFor+in, maxRetryAfter)
		}
	}
	b.began, b.finished, b.deferred, b.stalled = now, 0, 0, false
}
