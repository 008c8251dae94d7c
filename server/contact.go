package server

import "time"

// steady is how long a connection to the fleet lasts whose loss is news again; chosen.
const steady = time.Hour

// contact remembers what was said of connections to the fleet, so that a network that
// comes and goes for a week is a few lines: of the losses that follow each other the
// first is said, the second, the fourth, the eighth and so on, and what comes after it is
// said if it was, or if it is news by itself.
type contact struct {
	losses int       // in a row
	lost   time.Time // the last of them, by the process's clock
	unsaid bool      // nothing was said since the last connection
}

// lose counts the loss of a connection. It reports whether to say so.
func (c *contact) lose(lasted time.Duration) bool {
	if lasted >= steady {
		c.losses = 0
	}
	c.losses++
	c.lost, c.unsaid = time.Now(), !c.telling()
	return !c.unsaid
}

// telling reports whether the last loss is one of those that are said.
func (c *contact) telling() bool { return c.losses&(c.losses-1) == 0 }

// overdue reports, once, that a loss of which nothing was said lasts for longer than limit.
func (c *contact) overdue(limit time.Duration) bool {
	late := c.unsaid && time.Since(c.lost) > limit
	c.unsaid = c.unsaid && !late
	return late
}
