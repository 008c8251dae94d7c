package limit

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Limits of the wait that [Backlog.Next] returns.
const (
	minRetryAfter = 500 * time.Millisecond
	maxRetryAfter = 5 * time.Minute

	// firstRetryAfter is the longest wait right after a start. 2 s were too short for 20,000 nodes.
	firstRetryAfter = 5 * time.Second

	// startRate is the rate per second before any measurement: a disk that needs 1 ms per write.
	startRate = 1000.0

	// A measurement longer than maxMeasure is discarded: there was too little work.
	measureFor   = 250 * time.Millisecond
	maxMeasure   = 4 * measureFor
	newestWeight = 0.25

	// overcommit lets a rate recover that was measured too low.
	overcommit = 1.25
)

// Backlog spreads the retries of refused callers at the measured rate of work. It is safe for concurrent use.
type Backlog struct {
	now func() time.Time

	mu          sync.Mutex    // guards the rest
	rate        float64       // finished per second
	measuredFor time.Duration // total time of measurements
	waiting     float64       // callers whose retry is not due yet
	updated     time.Time     // time of waiting

	began    time.Time // of this measurement
	finished int       // since then
	deferred int       // since then
	stalled  bool      // discard this measurement
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

// Stalled discards the current measurement.
func (b *Backlog) Stalled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.measure()
	b.stalled = true
}

// Next returns how long a refused caller must wait before its retry.
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

// Soon returns a short wait, for nearly finished work.
func (b *Backlog) Soon() time.Duration {
	return minRetryAfter + rand.N(minRetryAfter) //nolint:gosec // spreads load, hides nothing
}

// If no caller was refused, a measurement can only raise the rate. The caller holds mu.
func (b *Backlog) measure() {
	now := b.now()
	if passed := now.Sub(b.updated); passed > 0 {
		b.waiting = max(0, b.waiting-b.rate*overcommit*passed.Seconds())
	}
	b.updated = now // even if the clock was set back
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
