package testbed

import (
	"sync/atomic"
	"time"
)

// A Clock is the real one, moved by what tests say. It is safe for concurrent
// use.
type Clock struct {
	offset atomic.Int64
	base   *Clock // what it is moved from; nil for the real one
}

// Now returns the moved time.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if c.base != nil {
		now = c.base.Now()
	}
	return now.Add(time.Duration(c.offset.Load()))
}

// Advance moves the clock by d, which may be negative.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }
