package limit

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Bounds on what a caller is told that finds no room.
const (
	minRetryAfter = 500 * time.Millisecond
	maxRetryAfter = 5 * time.Minute

	// firstRetryAfter is the longest wait while the rate was measured for less than that. A storm of 20,000 nodes
	// ends with 4 s, and does not with 2 s.
	firstRetryAfter = 5 * time.Second

	// startRate, a second, is assumed until something was measured: what a disk of 1 ms a write gives.
	startRate = 1000.0

	// measureFor is the time of one measurement, and newest the weight of the newest one. One that was begun
	// longer ago than maxMeasure says nothing: there was nothing to do.
	measureFor   = 250 * time.Millisecond
	maxMeasure   = 4 * measureFor
	newestWeight = 0.25

	// overcommit is how many callers are told to come back for each that can be served. With 1, a rate that was
	// once measured too low would stay too low: no caller would come to show that more can be done.
	overcommit = 1.25
)

// Backlog tells callers for which there is no room when to come back: one after the other, at the rate at which work
// is finished, so that they come at the pace that can be served. It is safe for concurrent use.
type Backlog struct {
	now func() time.Time

	mu          sync.Mutex    // guards the rest
	rate        float64       // finished a second
	measuredFor time.Duration // for how long that was measured
	waiting     float64       // callers that were told to come back and are not due yet
	updated     time.Time     // when waiting was that

	began    time.Time // begin of the present measurement
	finished int       // since then
	deferred int       // likewise
	stalled  bool      // the present measurement says nothing
}

// NewBacklog returns a Backlog that has measured nothing. A nil now is [time.Now].
func NewBacklog(now func() time.Time) *Backlog {
	if now == nil {
		now = time.Now
	}
	return &Backlog{now: now, rate: startRate, updated: now(), began: now()}
}

// Done counts work that was finished.
func (b *Backlog) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.measure()
	b.finished++
}

// Stalled says that work came to nothing for want of the store: afterwards that goes on at its old rate, so what is
// measured meanwhile is not counted.
func (b *Backlog) Stalled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.measure()
	b.stalled = true
}

// Next returns when a caller for which there is no room is to come back.
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

// Soon returns when a caller is to come back that goes before those of [Backlog.Next]: what is nearly finished.
func (b *Backlog) Soon() time.Duration {
	return minRetryAfter + rand.N(minRetryAfter) //nolint:gosec // spreads load, hides nothing
}

// measure brings waiting to the present, and ends a measurement that is old enough. A time in which there was room
// for all says only that as much as was done can be done. The caller holds mu.
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
			weight = 1 // better than an assumption
		}
		b.rate = max((1-weight)*b.rate+weight*measured, 1)
		if crowded {
			b.measuredFor = min(b.measuredFor+in, maxRetryAfter)
		}
	}
	b.began, b.finished, b.deferred, b.stalled = now, 0, 0, false
}
