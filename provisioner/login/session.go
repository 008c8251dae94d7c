package login

import (
	"context"
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

// maxSession is how long a session can last; it does not outlast the ID token.
const maxSession = 12 * time.Hour

// sessionText is a session as its holder shows it: person and secret.
var sessionText = regexp.MustCompile(`^muster\.([0-9a-f]{32})\.([A-Za-z0-9_-]{43})$`)

var errNoSession = errors.New("the session has ended")

// OIDC returns the OpenID Connect provider, or nil.
func (v *Verifier) OIDC() *Provider { return v.oidc }

// SignIn begins a session after the provider has sent the browser back with a query. Errors are those of
// [Verifier.Certificate], and wrap [ErrProvider] if the provider does not answer.
func (v *Verifier) SignIn(ctx context.Context, f Flow, back url.Values, source string) (l *Login, session string,
	err error) {
	l, err = v.login(ctx, source, func(l *Login) error {
		i, err := v.oidc.finish(ctx, f, back, v.cfg.Now)
		if err != nil {
			return err
		}
		now := v.now()
		session, err = v.begin(ctx, l, i.sessions, orders.Session{
			Name:    "oidc:" + i.name,
			Role:    i.role,
			Agent:   "browser",
			Expires: earlier(i.expires, now.Add(maxSession)),
			Source:  hostOf(source),
		})
		return err
	})
	return l, session, err
}

// now is the time of an entry.
func (v *Verifier) now() time.Time { return v.cfg.Now().UTC().Truncate(time.Second) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func hostOf(source string) string {
	if host, _, err := net.SplitHostPort(source); err == nil {
		return host
	}
	return source
}

// begin writes a session of a person, and sets the login.
func (v *Verifier) begin(ctx context.Context, l *Login, of *orders.Sessions, s orders.Session) (string, error) {
	var secret string
	secret, s.Hash = orders.NewSecret()
	s.ID, s.Created = wire.NewID(), v.now()
	s.Used = s.Created
	err := v.change(ctx, of, func(all []orders.Session) ([]orders.Session, error) { return append(all, s), nil })
	if err != nil {
		return "", err
	}
	if s.Challenge == "" {
		v.cfg.Emit(events.Event{Type: events.SessionBegun, Time: v.cfg.Now().UTC().Truncate(time.Millisecond),
			Operator: s.Name, Role: string(s.Role), Source: s.Source})
	}
	l.of(of.Person, &s)
	return "muster." + of.Person + "." + secret, nil
}

func (l *Login) of(person string, s *orders.Session) {
	l.Name, l.Role, l.Expires, l.Session, l.person = s.Name, s.Role, s.Expires, s.ID, person
}

// change writes the sessions of a person without those that are over.
func (v *Verifier) change(ctx context.Context, of *orders.Sessions,
	next func([]orders.Session) ([]orders.Session, error),
) error {
	_, err := trust.Change(ctx, v.sessions, of.Person,
		func(e trust.Entry[*orders.Sessions]) (_ *orders.Sessions, err error) {
			changed := *of
			if changed.Sessions, err = next(slices.DeleteFunc(slices.Clone(v.live(e).Sessions),
				func(s orders.Session) bool { return !s.Live(v.cfg.Now()) })); err != nil {
				return nil, err
			}
			changed.Sessions = changed.Sessions[max(0, len(changed.Sessions)-orders.MaxSessions):]
			return &changed, nil
		})
	return err
}

// live returns what an entry admits: nothing of another issuer, from before a restore, or of another version.
func (v *Verifier) live(e trust.Entry[*orders.Sessions]) *orders.Sessions {
	if v.oidc == nil || e.Value == nil || e.Unread != nil || e.Value.Issuer != v.oidc.Issuer ||
		v.cfg.Store.Logs().NewestRecovery().Voids(e.Revision) {
		return &orders.Sessions{}
	}
	return e.Value
}

// session logs in by a session's text.
func (v *Verifier) session(l *Login, parts []string) error {
	e, _ := v.sessions.Get(parts[1])
	all := v.live(e)
	i := slices.IndexFunc(all.Sessions, func(s orders.Session) bool { return s.Challenge == "" && s.Holds(parts[2]) })
	if i < 0 || !all.Sessions[i].Live(v.cfg.Now()) {
		return errNoSession
	}
	l.of(all.Person, &all.Sessions[i])
	return nil
}

// A SessionInfo is a session as listed.
type SessionInfo struct {
	ID      string             `json:"id"`
	Name    string             `json:"name"`
	Role    trust.OperatorRole `json:"role"`
	Agent   string             `json:"agent"` // browser, command
	Issuer  string             `json:"issuer"`
	Subject string             `json:"subject"`
	Created time.Time          `json:"created"`
	Expires time.Time          `json:"expires"`
	Source  string             `json:"source"`
	Used    time.Time          `json:"used"`
}

// Sessions returns the live sessions, the newest first. The error wraps [trust.ErrRevocationsUnknown] if the list may
// be stale.
func (v *Verifier) Sessions() ([]SessionInfo, error) {
	if err := v.provisioner.Fresh(); err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	list := []SessionInfo{}
	for _, e := range v.sessions.All() {
		all := v.live(e)
		for _, s := range all.Sessions {
			if s.Challenge == "" && s.Live(v.cfg.Now()) {
				list = append(list, SessionInfo{s.ID, s.Name, s.Role, s.Agent, all.Issuer, all.Subject, s.Created,
					s.Expires, s.Source, s.Used})
			}
		}
	}
	slices.SortFunc(list, func(a, b SessionInfo) int { return b.Created.Compare(a.Created) })
	return list, nil
}

// ErrNoSession means that there is no such live session.
var ErrNoSession = errors.New("no such session")

// End ends a session. It is in force on every provisioner within a second. The error is [ErrNoSession] if it has ended.
func (v *Verifier) End(ctx context.Context, id string, c trust.Cause) error {
	if err := c.Check(); err != nil {
		return err
	}
	for _, e := range v.sessions.All() {
		all := v.live(e)
		i := slices.IndexFunc(all.Sessions, func(s orders.Session) bool { return s.ID == id })
		if i < 0 {
			continue
		}
		err := v.change(ctx, all, func(now []orders.Session) ([]orders.Session, error) {
			return slices.DeleteFunc(now, func(s orders.Session) bool { return s.ID == id }), nil
		})
		if err != nil {
			return fmt.Errorf("end session %s: %w", id, err)
		}
		name := all.Sessions[i].Name
		v.cfg.Emit(events.Event{Type: events.SessionEnded, Time: v.cfg.Now().UTC().Truncate(time.Millisecond),
			Operator: name, By: c.By, Why: c.Why})
		v.cfg.Log.InfoContext(ctx, "session ended", "operator", name, "by", c.By, "why", c.Why)
		return nil
	}
	return fmt.Errorf("%w: %.80q", ErrNoSession, id)
}
