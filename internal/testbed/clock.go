package testbed

import (
	"sync/atomic"
	"time"
)

// A Clock is the real one, moved by what tests say, or held. It is safe for concurrent
// use.
type Clock struct {
	offset atomic.Int64
	held   atomic.Pointer[time.Time] // what it goes no further than; nil while it goes
	base   *Clock                    // what it is moved from; nil for the real one
}

// Now returns the moved time.
func (c *Clock) Now() time.Time {
	return c.unmoved().Add(time.Duration(c.offset.Load()))
}

// unmoved returns the time that the clock is moved from.
func (c *Clock) unmoved() time.Time {
	switch at := c.held.Load(); {
	case at != nil:
		return *at
	case c.base != nil:
		return c.base.Now()
	}
	return time.Now()
}

// at returns what the clock says when the real one says t: a store's clock is moved as the fleet's is.
func (c *Clock) at(t time.Time) time.Time { return t.Add(time.Until(c.Now())) }

// Hold stops the clock, so that nothing but Advance moves it: however long a slow machine
// takes, what comes back with time does not come back meanwhile.
func (c *Clock) Hold() {
	now := c.unmoved()
	c.held.Store(&now)
}

// Advance moves the clock by d, which may be negative.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }
