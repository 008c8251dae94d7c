package testbed

import (
	"sync/atomic"
	"time"
)

// A Clock is the real clock, which tests can move or stop. It is safe for concurrent use.
type Clock struct {
	offset atomic.Int64
	held   atomic.Pointer[time.Time]
	base   *Clock
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	return c.baseTime().Add(time.Duration(c.offset.Load()))
}

func (c *Clock) baseTime() time.Time {
	switch at := c.held.Load(); {
	case at != nil:
		return *at
	case c.base != nil:
		return c.base.Now()
	}
	return time.Now()
}

// at converts the real time t to this clock's time, for a store.
func (c *Clock) at(t time.Time) time.Time { return t.Add(time.Until(c.Now())) }

// Hold stops the clock, so that on a slow machine only Advance moves it.
func (c *Clock) Hold() {
	now := c.baseTime()
	c.held.Store(&now)
}

// Advance sets the clock forward, or back if d is negative.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }
