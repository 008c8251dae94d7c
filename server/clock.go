package server

import (
	"strings"
	"time"

	"muster/server/files"
)

// A clock is the node's. No clock on a node is trusted: one without a battery
// starts in 1970, or at the time of the last shutdown. So the time is the latest
// of the machine's, the last that was saved, and the start of the certificate
// that is judged.
//
// A time is saved only while the node is connected to its fleet. By such a time
// both the node's certificate and the broker's are valid, so that a clock that
// is ahead by more cannot lock the node out for good.
type clock struct {
	machine func() time.Time
	path    string
	saved   time.Time // zero: none
}

// loadClock reads the last time saved. Without a readable one there is none.
func loadClock(path string, machine func() time.Time) *clock {
	c := &clock{machine: machine, path: path}
	if b, err := files.Read(path, 64); err == nil { // a time has 20 bytes
		c.saved, _ = time.Parse(time.RFC3339, strings.TrimSpace(string(b)))
	}
	return c
}

// now returns the later of the machine's clock and the last time saved.
func (c *clock) now() time.Time { return c.at(time.Time{}) }

// at returns the time by which a certificate that starts at notBefore is judged.
func (c *clock) at(notBefore time.Time) time.Time {
	now := c.machine()
	for _, t := range []time.Time{c.saved, notBefore} {
		if t.After(now) {
			now = t
		}
	}
	return now
}

// save saves the time, which notBefore has passed, at most once a minute.
func (c *clock) save(notBefore time.Time) error {
	now := c.at(notBefore).UTC().Truncate(time.Second)
	if now.Sub(c.saved) < time.Minute {
		return nil
	}
	c.saved = now
	return files.Replace(c.path, []byte(now.Format(time.RFC3339)+"\n"), 0o644)
}
