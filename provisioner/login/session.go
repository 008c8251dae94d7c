package login

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

const (
	sessionLife = 12 * time.Hour // a working day: some providers' ID tokens end after minutes
	maxCode     = time.Minute    // from the browser to the waiting `muster login`
	noteAgain   = 10 * time.Minute
)

// sessionText is a session or a code as its holder shows it: person and secret.
var sessionText = regexp.MustCompile(`^muster\.([0-9a-f]{32})\.([A-Za-z0-9_-]{43})$`)

// ErrNoSession means that there is no such live session.
var ErrNoSession = errors.New("no such session: it has ended")

// OIDC returns the OpenID Connect provider, or nil.
func (v *Verifier) OIDC() *Provider { return v.oidc }

// SignIn begins a session after the provider has sent the browser back with a query. Errors are those of
// [Verifier.Certificate], and wrap [ErrProvider] if the provider does not answer.
func (v *Verifier) SignIn(ctx context.Context, f Flow, back url.Values, source string) (_ *Login, text string,
	err error) {
	l, err := v.login(ctx, source, func(l *Login) error {
		of, err := v.oidc.finish(ctx, f, back, v.cfg.Now)
		if err == nil {
			text, err = v.begin(ctx, l, of, of.Sessions[0], source)
		}
		return err
	})
	return l, text, err
}

// begin writes a session of a person, and sets the login.
func (v *Verifier) begin(ctx context.Context, l *Login, of *orders.Sessions, s orders.Session, source string,
) (text string, err error) {
	text, s.Hash = orders.NewSecret()
	s.ID, s.Created = wire.NewID(), v.cfg.Now().UTC().Truncate(time.Second)
	s.Source, s.Used = hostOf(source), s.Created
	err = v.change(ctx, of, func(all []orders.Session) []orders.Session { return append(all, s) })
	if err == nil && s.Challenge == "" {
		v.emit(events.Event{Type: events.SessionBegun, Operator: s.Name, Role: string(s.Role), Source: s.Source})
	}
	l.of(of.Person, &s)
	return "muster." + of.Person + "." + text, err
}

func hostOf(source string) string {
	host, _, _ := net.SplitHostPort(source)
	return host
}

func (l *Login) of(person string, s *orders.Session) {
	l.Name, l.Role, l.Sites, l.Expires, l.Session, l.person = s.Name, s.Role, s.Sites, s.Expires, s.ID, person
}

func (v *Verifier) emit(e events.Event) {
	e.Time = v.cfg.Now().UTC().Truncate(time.Millisecond)
	v.cfg.Emit(e)
}

// change writes the sessions of a person without those that have expired.
func (v *Verifier) change(ctx context.Context, of *orders.Sessions,
	next func([]orders.Session) []orders.Session,
) error {
	_, err := trust.Change(ctx, v.sessions, of.Person,
		func(e trust.Entry[*orders.Sessions]) (*orders.Sessions, error) {
			changed := *of
			changed.Sessions = next(v.live(e).Sessions)
			changed.Sessions = changed.Sessions[max(0, len(changed.Sessions)-orders.MaxSessions):]
			return &changed, nil
		})
	return err
}

// live returns a copy of an entry with what it admits: nothing of another issuer, from before a restore, or of another
// version.
func (v *Verifier) live(e trust.Entry[*orders.Sessions]) *orders.Sessions {
	if v.oidc == nil || e.Value == nil || e.Unread != nil || e.Value.Issuer != v.oidc.Issuer ||
		v.cfg.Store.Logs().NewestRecovery().Voids(e.Revision) {
		return &orders.Sessions{}
	}
	live := *e.Value
	live.Sessions = slices.DeleteFunc(slices.Clone(live.Sessions),
		func(s orders.Session) bool { return !v.cfg.Now().Before(s.Expires) })
	return &live
}

// find returns the session or the code with a text.
func (v *Verifier) find(text, challenge string) (*orders.Sessions, *orders.Session) {
	parts := sessionText.FindStringSubmatch(text)
	if parts == nil {
		return nil, nil
	}
	e, _ := v.sessions.Get(parts[1])
	all, hash := v.live(e), wire.Sum([]byte(parts[2]))
	i := slices.IndexFunc(all.Sessions,
		func(s orders.Session) bool { return same(s.Hash, hash) && same(s.Challenge, challenge) })
	if i < 0 {
		return nil, nil
	}
	return all, &all.Sessions[i]
}

// session logs in by a session's text, and notes where it is used.
func (v *Verifier) session(ctx context.Context, l *Login, text, source string) error {
	all, s := v.find(text, "")
	if s == nil {
		return ErrNoSession
	}
	l.of(all.Person, s)
	now, from := v.cfg.Now().UTC().Truncate(time.Second), hostOf(source)
	if from == s.Source || now.Sub(s.Used) < noteAgain {
		return nil
	}
	err := v.change(ctx, all, func(list []orders.Session) []orders.Session {
		if i := slices.IndexFunc(list, func(o orders.Session) bool { return o.ID == s.ID }); i >= 0 {
			list[i].Source, list[i].Used = from, now
		}
		return list
	})
	if err != nil { // the operator gets in all the same
		v.cfg.Log.DebugContext(ctx, "address of a session not noted", "operator", s.Name, "err", err)
	}
	return nil
}

// Code returns a code with which `muster login` gets a session like that of l, which must have one. challenge is
// [Challenge] of its verifier.
func (v *Verifier) Code(ctx context.Context, l *Login, challenge, source string) (string, error) {
	e, _ := v.sessions.Get(l.person)
	of := v.live(e)
	i := slices.IndexFunc(of.Sessions, func(s orders.Session) bool { return s.ID == l.Session })
	if i < 0 || challenge == "" {
		return "", ErrNoSession
	}
	s := of.Sessions[i]
	s.Challenge, s.Until = challenge, s.Expires
	if soon := v.cfg.Now().Add(maxCode); soon.Before(s.Expires) {
		s.Expires = soon
	}
	return v.begin(ctx, &Login{}, of, s, source)
}

// Challenge returns what [Verifier.Code] needs of a verifier.
func Challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Redeem turns a code into a session, once. Errors are those of [Verifier.Certificate].
func (v *Verifier) Redeem(ctx context.Context, code, verifier, source string) (_ *Login, text string, err error) {
	l, err := v.login(ctx, source, func(l *Login) error {
		of, s := v.find(code, Challenge(verifier))
		if s == nil {
			return ErrNoSession
		}
		spent := false
		err := v.change(ctx, of, func(all []orders.Session) []orders.Session {
			rest := slices.DeleteFunc(slices.Clone(all), func(c orders.Session) bool { return c.ID == s.ID })
			spent = len(rest) == len(all)
			return rest
		})
		if err == nil && spent { // by a request at the same time
			err = ErrNoSession
		}
		if err == nil {
			s.Challenge, s.Agent, s.Expires, s.Until = "", "command", s.Until, time.Time{}
			text, err = v.begin(ctx, l, of, *s, source)
		}
		return err
	})
	return l, text, err
}

// Sessions returns the live sessions, the newest first, without their hashes. The error wraps
// [trust.ErrRevocationsUnknown] if the list may be stale.
func (v *Verifier) Sessions() ([]orders.Session, error) {
	if err := v.provisioner.Fresh(); err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	var list []orders.Session
	for _, e := range v.sessions.All() {
		for _, s := range v.live(e).Sessions {
			if s.Hash = ""; s.Challenge == "" {
				list = append(list, s)
			}
		}
	}
	slices.SortFunc(list, func(a, b orders.Session) int { return b.Created.Compare(a.Created) })
	return list, nil
}

// End ends a session. It is in force on every provisioner within a second. The error is [ErrNoSession] if it has ended.
func (v *Verifier) End(ctx context.Context, id string, c trust.Cause) error {
	for _, e := range v.sessions.All() {
		all := v.live(e)
		i := slices.IndexFunc(all.Sessions, func(s orders.Session) bool { return s.ID == id })
		if i < 0 {
			continue
		}
		err := v.change(ctx, all, func(now []orders.Session) []orders.Session {
			return slices.DeleteFunc(now, func(s orders.Session) bool { return s.ID == id })
		})
		if err != nil {
			return fmt.Errorf("end session %s: %w", id, err)
		}
		name := all.Sessions[i].Name
		v.emit(events.Event{Type: events.SessionEnded, Operator: name, By: c.By, Why: c.Why})
		v.cfg.Log.InfoContext(ctx, "session ended", "operator", name, "by", c.By, "why", c.Why)
		return nil
	}
	return ErrNoSession
}
