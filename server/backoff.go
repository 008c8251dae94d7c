package server

import (
	"errors"
	"time"

	"muster/server/link"
)

// backoff spreads retries: each wait is a random part, between half and all, of
// a bound that doubles from min up to max.
type backoff struct {
	min, max time.Duration
	random   func() float64 // in [0,1)
	tries    int
}

// next returns how long to wait before the next try.
func (b *backoff) next() time.Duration {
	bound := b.max
	if b.tries < 30 && b.min<<b.tries < b.max { // 30: no shift overflows below it
		bound = b.min << b.tries
	}
	b.tries++
	return bound/2 + time.Duration(b.random()*float64(bound/2))
}

// told returns how long to wait where a provisioner has said so: up to a quarter
// longer, so that nodes that were told the same do not come back together, and not
// shorter than the shortest wait of our own, since anything in between can put any
// number into a refusal in plain. Afterwards waits begin anew.
func (b *backoff) told(d time.Duration) time.Duration {
	b.reset()
	d = max(d, b.min/2)
	return d + time.Duration(b.random()*float64(d/4))
}

// after returns how long to wait after an attempt that ended with err: as long as the provisioner
// said, so that it can spread its backlog, else until the next try.
func (b *backoff) after(err error) time.Duration {
	var refused link.Refusal
	if errors.As(err, &refused) && refused.Wait() > 0 {
		return b.told(refused.Wait())
	}
	return max(b.next(), link.SlowedBy(err))
}

// rounded returns a wait as it is told to people: whole seconds, below that
// milliseconds.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

func (b *backoff) reset() { b.tries = 0 }
