package server

import (
	"strings"
	"sync"
	"time"

	"muster/internal/inputfile"
	"muster/server/files"
)

// A clock returns the latest of the machine's clock, the saved time, and the start of the certificate being checked. A
// machine without a battery starts in 1970, or at its last shutdown.
//
// The agent saves the time only while it is connected to its fleet: both certificates are valid then, so a clock that
// ran ahead cannot lock the node out forever.
type clock struct {
	machine func() time.Time
	path    string

	mu    sync.Mutex // the services read the time, too
	saved time.Time
}

// loadClock reads the saved time. An unreadable file counts as none.
func loadClock(path string, machine func() time.Time) *clock {
	c := &clock{machine: machine, path: path}
	if b, err := inputfile.Read(path, inputfile.Configured, 64); err == nil {
		c.saved, _ = time.Parse(time.RFC3339, strings.TrimSpace(string(b)))
	}
	return c
}

func (c *clock) now() time.Time { return c.at(time.Time{}) }

func (c *clock) at(notBefore time.Time) time.Time {
	now := c.machine()
	c.mu.Lock()
	saved := c.saved
	c.mu.Unlock()
	for _, t := range []time.Time{saved, notBefore} {
		if t.After(now) {
			now = t
		}
	}
	return now
}

func (c *clock) save(notBefore time.Time) error {
	now := c.at(notBefore).UTC().Truncate(time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.saved) < time.Minute {
		return nil
	}
	c.saved = now
	return files.Replace(c.path, []byte(now.Format(time.RFC3339)+"\n"), 0o644)
}
