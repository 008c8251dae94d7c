package server

import (
	"errors"
	"time"

	"muster/server/link"
)

// backoff spreads retries. Each wait is random, between half of a bound and the bound, which doubles from min to max.
type backoff struct {
	min, max time.Duration
	random   func() float64
	tries    int
}

func (b *backoff) next() time.Duration {
	bound := b.max
	if b.tries < 30 && b.min<<b.tries < b.max {
		bound = b.min << b.tries
	}
	b.tries++
	return bound/2 + time.Duration(b.random()*float64(bound/2))
}

// retryAfter returns the wait if a provisioner asked for d, and resets the backoff. It adds up to a quarter, so that
// nodes with the same wait do not return together. The wait is at least half of min, since anything on the network can
// forge an unencrypted refusal.
func (b *backoff) retryAfter(d time.Duration) time.Duration {
	b.reset()
	d = max(d, b.min/2)
	return d + time.Duration(b.random()*float64(d/4))
}

// afterError returns the wait after a failed attempt: the provisioner's wait, else the next backoff.
func (b *backoff) afterError(err error) time.Duration {
	if refused, ok := errors.AsType[link.Refusal](err); ok && refused.Wait() > 0 {
		return b.retryAfter(refused.Wait())
	}
	return max(b.next(), link.WaitOf(err))
}

func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

func (b *backoff) reset() { b.tries = 0 }
