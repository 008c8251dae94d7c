package link

import (
	"errors"
	"time"
)

// A Backoff spreads retries. Each wait is random, between half of a bound and the bound, which doubles from Min to Max.
type Backoff struct {
	Min, Max time.Duration
	Random   func() float64 // 0 to 1
	Tries    int            // since the last success
}

// Next returns the wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	bound := b.Max
	if b.Tries < 30 && b.Min<<b.Tries < b.Max {
		bound = b.Min << b.Tries
	}
	b.Tries++
	return bound/2 + time.Duration(b.Random()*float64(bound/2))
}

// RetryAfter returns the wait if a provisioner asked for d, and resets the backoff. It adds up to a quarter, so that
// nodes with the same wait do not return together. The wait is at least half of Min, since anything on the network can
// forge an unencrypted refusal.
func (b *Backoff) RetryAfter(d time.Duration) time.Duration {
	b.Reset()
	d = max(d, b.Min/2)
	return d + time.Duration(b.Random()*float64(d/4))
}

// AfterError returns the wait after a failed attempt: the provisioner's wait, else the next one.
func (b *Backoff) AfterError(err error) time.Duration {
	if refused, ok := errors.AsType[Refusal](err); ok && refused.Wait() > 0 {
		return b.RetryAfter(refused.Wait())
	}
	return max(b.Next(), WaitOf(err))
}

// Reset follows a success.
func (b *Backoff) Reset() { b.Tries = 0 }
