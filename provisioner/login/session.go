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
	noteAgain   = 10 * time.Minute
)

// sessionText is a session as its holder shows it: person, secret, and the verifier of a command.
var sessionText = regexp.MustCompile(`^muster\.([0-9a-f]{32})\.([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{43})?$`)

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
			text, err = v.begin(ctx, l, of, "", source)
		}
		return err
	})
	return l, text, err
}

func (v *Verifier) begin(ctx context.Context, l *Login, of *orders.Sessions, challenge, source string) (text string,
	err error) {
	s := of.Sessions[0]
	text, _ = orders.NewSecret()
	s.ID, s.Hash, s.Created = wire.NewID(), wire.Sum([]byte(text+challenge)), v.cfg.Now().UTC().Truncate(time.Second)
	s.Source, s.Used = hostOf(source), s.Created
	err = v.change(ctx, of, func(all []orders.Session) []orders.Session { return append(all, s) })
	if err == nil {
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

// session logs in by a session's text, and notes where it is used. parts are those of sessionText.
func (v *Verifier) session(ctx context.Context, l *Login, parts []string, source string) error {
	e, _ := v.sessions.Get(parts[1])
	all, hash := v.live(e), wire.Sum([]byte(parts[2]+Challenge(parts[3])))
	i := slices.IndexFunc(all.Sessions, func(s orders.Session) bool { return same(s.Hash, hash) })
	if i < 0 {
		return ErrNoSession
	}
	s := &all.Sessions[i]
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

// Command begins a session like that of l for a waiting `muster login`, which makes a verifier of 43 characters of
// base64url. Its token is the text with the verifier, so the browser that carries the text to it has no session.
// challenge is [Challenge] of the verifier.
func (v *Verifier) Command(ctx context.Context, l *Login, challenge, source string) (text string, err error) {
	if l.Session == "" || challenge == "" {
		return "", ErrNoSession
	}
	s := orders.Session{Name: l.Name, Role: l.Role, Sites: l.Sites, Agent: "command", Expires: l.Expires}
	return v.begin(ctx, &Login{}, &orders.Sessions{Schema: orders.SessionSchema, Person: l.person,
		Issuer: v.oidc.Issuer, Sessions: []orders.Session{s}}, challenge, source)
}

// Challenge returns what [Verifier.Command] needs of a verifier; "" of none.
func Challenge(verifier string) string {
	if verifier == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
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
			s.Hash = ""
			list = append(list, s)
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
