package server

import (
	"context"
	"strings"
	"time"
)

// No clock on a node is trusted: one without a battery starts in 1970, or at
// the time of the last shutdown. A time that was seen once is not undone by
// that, so the latest one is kept on disk. Where the machine's clock is behind the start
// of the certificate in force, and so not set, that time goes on by the process's clock,
// which nobody sets: else it stood still, and the certificate would end before it is due for
// its renewal. Where the clock may be right, it does not: a time that was wrongly saved
// would be ahead for ever.

// now returns the later of this machine's clock and the last time seen, as it is by now.
func (s *Server) now() time.Time {
	now := s.cfg.Now()
	if passed := s.passed(); passed.After(now) {
		return passed
	}
	return now
}

// passed returns the last time seen, as it is by now; zero if none was.
func (s *Server) passed() time.Time {
	if s.seen.IsZero() || !s.cfg.Now().Before(s.proven) {
		return s.seen
	}
	// Rounded, it is the machine's time: else the process's clock, which goes on whatever the
	// machine's is set to, would be asked which of the two is later, and find the other one.
	return s.seen.Round(0).Add(time.Since(s.seenAt))
}

// saw notes a time that is known to have passed.
func (s *Server) saw(t time.Time) { s.seen, s.seenAt = t, time.Now() }

// nowFor returns the time by which a certificate that starts at notBefore is
// judged: such a certificate proves that its start has passed.
func (s *Server) nowFor(notBefore time.Time) time.Time {
	now := s.now()
	if notBefore.After(now) {
		return notBefore
	}
	return now
}

// ownTimeFor is nowFor without the time that was saved.
func (s *Server) ownTimeFor(notBefore time.Time) time.Time {
	if now := s.cfg.Now(); now.After(notBefore) {
		return now
	}
	return notBefore
}

// A deadline is a time to come by two clocks, and has come by whichever is there first: the
// process's, which nobody sets, but which stands still while the machine sleeps, and the
// machine's, which goes on then, but may be set back. What a node puts off for an hour it
// would else do after a day, if it sleeps between. The zero deadline has come.
type deadline struct{ process, machine time.Time }

// in returns the deadline that is d from now.
func (s *Server) in(d time.Duration) deadline {
	return deadline{process: time.Now().Add(d), machine: s.cfg.Now().Round(0).Add(d)}
}

// come reports whether a deadline has come.
func (s *Server) come(d deadline) bool {
	return !time.Now().Before(d.process) || !s.cfg.Now().Round(0).Before(d.machine) // rounded, it is the machine's
}

// loadClock reads the last time saved. Without a readable one there is none.
func loadClock(path string) time.Time {
	b, err := readBounded(path, 64) // a time has 20
	if err != nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, strings.TrimSpace(string(b)))
	if err != nil {
		return time.Time{}
	}
	return t
}

// saveClock saves the time if it is later than the last one saved. A time that cannot be
// saved costs only its protection.
func (s *Server) saveClock(ctx context.Context) {
	if now := s.now().UTC(); now.Truncate(time.Second).After(s.saved) {
		s.setClock(ctx, now)
	}
}

// setClock saves t, even if it is earlier than the one before: a clock that was
// wrongly far ahead would otherwise let every certificate look expired for
// ever. Only a fresh certificate is evidence enough for that, see check, or brokers
// that take the one on disk, see withoutSaved.
func (s *Server) setClock(ctx context.Context, t time.Time) {
	s.saw(t)
	s.saved = t
	if err := writeUnsynced(s.at.clock, []byte(t.UTC().Format(time.RFC3339)+"\n"), 0o644); err != nil {
		s.cfg.Log.DebugContext(ctx, "time not saved", "err", err)
	}
	s.step("clock saved")
}

// withoutSaved returns what a look finds by this machine's clock alone, if v found
// the certificate to be over, by the saved time only, and the node could go on with
// it. Else it returns nil. The saved time is dropped if good says so of the view, or is
// nil, and stays what it was otherwise.
//
// Once the clock was far ahead for a moment, the certificate would be over until
// another one is given out: for ever, if the token is not good any more.
func (s *Server) withoutSaved(ctx context.Context, v *view, good func(*view) bool) *view {
	saved := s.seen
	if v == nil || !v.over || !s.passed().After(s.cfg.Now()) {
		return nil
	}
	s.seen = time.Time{}
	v, err := s.look()
	if err != nil || v.mode != ModeNormal || good != nil && !good(v) {
		s.seen = saved
		return nil
	}
	s.cfg.Log.WarnContext(ctx, "saved time dropped, by it alone the certificate was over", "node", v.identity, "saved", saved, "serial", v.creds.serial)
	s.setClock(ctx, s.cfg.Now().UTC().Truncate(time.Second))
	return v
}
