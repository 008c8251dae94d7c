package provisioner

import "time"

// When those who wait for an operator ask again. An operator who approves a
// machine watches it come up, so it asks every few seconds; of a hall full of
// machines that nobody has approved yet a process is asked crowdRate times a
// second in all, and past maxWaitAgain more, since an hour that nobody approves
// anything must not become an hour's wait for the one that is approved then. At
// 400 µs for a try with a TLS connection that
// is 4 % of a core for 2,000 machines and 20 % for 10,000. All chosen.
const (
	minWaitAgain = 3 * time.Second
	maxWaitAgain = 20 * time.Second
	crowdRate    = 100 // asks a second
)

// crowdWindow is in what time each of those who wait has asked: three times
// [maxWaitAgain].
const crowdWindow = time.Minute

// A crowd counts the keys that ask while they wait. The zero value is ready.
type crowd struct {
	began  time.Time // of the window
	so     int       // keys in it so far
	before int       // in the one before
}

// count takes in that a key asked, and returns when it is to ask again.
func (c *crowd) count(s *waitSeen, now time.Time) time.Duration {
	switch age := now.Sub(c.began); {
	case age < 0 || age >= 2*crowdWindow: // the clock went back, or nobody asked for long
		*c = crowd{began: now}
	case age >= crowdWindow:
		*c = crowd{began: now, before: c.so}
	}
	if !s.window.Equal(c.began) {
		s.window = c.began
		c.so++
	}
	many := max(c.so, c.before)
	return min(max(time.Duration(many)*time.Second/crowdRate, minWaitAgain), maxWaitAgain)
}
