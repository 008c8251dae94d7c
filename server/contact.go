package server

import (
	"context"
	"log/slog"
	"time"
)

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

// sayReached logs that the fleet is reached: at level debug if the loss before was not said.
func (s *Server) sayReached(ctx context.Context, v *view, conn *connection) {
	level := slog.LevelInfo
	if s.contact.unsaid {
		level = slog.LevelDebug
	}
	if s.contact.telling() {
		s.once.solved(msgUnreachable)
	}
	s.contact.unsaid = false
	s.cfg.Log.Log(ctx, level, "connected to the fleet", "node", v.identity, "broker", conn.broker, "serial", v.creds.serial)
}

// sayLost logs that a connection is lost, at level debug if it is one of many.
func (s *Server) sayLost(ctx context.Context, v *view, conn *connection, lasted, pause time.Duration) {
	level := slog.LevelDebug
	if s.contact.lose(lasted) {
		level = slog.LevelWarn
	}
	s.cfg.Log.Log(ctx, level, "connection to the fleet lost", "node", v.identity, "broker", conn.broker,
		"err", conn.LastError(), "losses", s.contact.losses, "retry_in", rounded(pause))
}

// sayUnreached logs why the fleet is not reached, if that is news, or lasts.
func (s *Server) sayUnreached(ctx context.Context, v *view, err error, pause time.Duration) {
	if s.contact.overdue(s.cfg.BackoffMax) {
		s.once.solved(msgUnreachable)
	}
	if s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, msgUnreachable, err, "node", v.identity, "retry_in", rounded(pause)) {
		s.contact.unsaid = false
	}
}
