// Package login authenticates operators over HTTPS, by certificate or by a signed token. Failed logins are limited by
// address and reported as events.
package login

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/orders"
)

// Errors of logins, besides [trust.ErrRevocationsUnknown] and [provisioner.ErrClock].
var (
	// ErrLogin means that the credential is not an operator's. Do not show strangers its cause.
	ErrLogin = errors.New("not an operator's credential")

	// ErrLimited means too many failed logins from this address. Try again in a second.
	ErrLimited = errors.New("too many failed logins from this address")
)

// A ValidityError means that a credential is not yet or no longer valid by the provisioner's clock. Its text may be
// shown.
type ValidityError struct {
	Err error
}

func (e *ValidityError) Error() string { return e.Err.Error() }

func (e *ValidityError) Unwrap() error { return e.Err }

// asValidityError returns a *ValidityError if err says that leaf itself is not valid now, else err.
func asValidityError(err error, leaf *x509.Certificate, now time.Time) error {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired || !leaf.Equal(invalid.Cert) {
		return err
	}
	when, edge := "ended", leaf.NotAfter
	if now.Before(leaf.NotBefore) {
		when, edge = "begins", leaf.NotBefore
	}
	return &ValidityError{fmt.Errorf("the certificate %s %s, the time here is %s", when,
		edge.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
}

// A Login is an operator, authenticated for one request.
type Login struct {
	Name string
	Role trust.OperatorRole

	// Names are those of [trust.OperatorEntry].
	Names []wire.Pattern

	// Sites limit the operator; every edge must heed them.
	Sites trust.Sites

	// Expires is when the token or the session expires, zero for a certificate.
	Expires time.Time

	// Session is the id of the session by OpenID Connect, "" for a token or a certificate.
	Session string
	person  string // see [orders.PersonOf]
}

// By returns the operator's name in events. It differs from names of local users, which have no colon (useradd(8)).
func (l *Login) By() string { return "operator:" + l.Name }

// A Verifier verifies operators' credentials. It is safe for concurrent use.
type Verifier struct {
	provisioner *provisioner.Provisioner
	cfg         provisioner.Config
	operators   trust.Operators
	sessions    trust.Log[*orders.Sessions]
	oidc        *Provider // may be nil
}

// New returns a Verifier for the operators of a provisioner, and for those of an OpenID Connect provider, unless it is
// nil.
func New(p *provisioner.Provisioner, oidc *Provider) *Verifier {
	cfg := p.Config()
	logs := cfg.Store.Logs()
	return &Verifier{provisioner: p, cfg: cfg, operators: logs.Operators, sessions: logs.Sessions, oidc: oidc}
}

// Certificate returns the operator of leaf. TLS must have proven that the peer has its key. Errors wrap [ErrLogin],
// [ErrLimited], [trust.ErrRevocationsUnknown] or [provisioner.ErrClock], and perhaps a *[ValidityError].
func (v *Verifier) Certificate(ctx context.Context, leaf *x509.Certificate, intermediates []*x509.Certificate,
	source string,
) (*Login, error) {
	return v.login(ctx, source, func(l *Login) error {
		// login has compared this clock with the mark in the store.
		now := v.cfg.Now()
		role, name, err := v.cfg.Authority.Verify(leaf, intermediates, now)
		if err != nil {
			return asValidityError(err, leaf, now)
		}
		if l.Name = name; role != wire.RoleOperator {
			return fmt.Errorf("certificate of role %s, want operator", role)
		}
		e, err := v.operator(l)
		if err != nil {
			return err
		}
		serial := ca.Serial(leaf)
		if by := v.provisioner.Revocations().Serial(serial); by != nil {
			return by.Err()
		}
		if serial != e.Serial || !bytes.Equal(leaf.RawSubjectPublicKeyInfo, e.Key) {
			return fmt.Errorf("certificate %s is not the operator's newest, which is %q", serial, e.Serial)
		}
		return nil
	})
}

// Token is [Verifier.Certificate] for a token that the operator has signed, see [jwt.SignOperator], or for a session.
func (v *Verifier) Token(ctx context.Context, text, source string) (*Login, error) {
	return v.login(ctx, source, func(l *Login) error {
		if parts := sessionText.FindStringSubmatch(text); parts != nil {
			return v.session(ctx, l, parts, source)
		}
		token, err := jwt.ParseOperator(text)
		if err != nil {
			return err
		}
		l.Name = token.Claimed()
		e, err := v.operator(l)
		if err != nil {
			return err
		}
		key, err := x509.ParsePKIXPublicKey(e.Key)
		if err != nil {
			return err
		}
		claims, err := token.Verify(key, v.cfg.Installation, v.cfg.Now())
		if errors.Is(err, jwt.ErrOperatorTime) {
			err = &ValidityError{err}
		}
		if err == nil {
			l.Expires = claims.ExpiresAt
		}
		return err
	})
}

// operator returns the entry of the claimed name, and sets role and limits.
func (v *Verifier) operator(l *Login) (*trust.OperatorEntry, error) {
	o, found := v.operators.Of(l.Name)
	switch {
	case !found:
		return nil, trust.ErrNoOperator
	case o.Ended != nil:
		return nil, fmt.Errorf("%w: removed by %s", trust.ErrNoOperator, o.Ended.By)
	}
	l.Role, l.Names, l.Sites = o.Role, o.Names, o.Sites
	return o.OperatorEntry, nil
}

type noticeKey struct{}

// WithNotice returns a context in which each login calls notice with the operator's name.
func WithNotice(ctx context.Context, notice func(operator string)) context.Context {
	return context.WithValue(ctx, noticeKey{}, notice)
}

// login authenticates within the failure budget of source, and reports refusals. authenticate fills the login as far as
// it comes.
func (v *Verifier) login(ctx context.Context, source string, authenticate func(*Login) error) (*Login, error) {
	if err := v.cfg.Clock.Check(); err != nil { // a wrong clock would accept expired credentials
		return nil, err
	}
	if err := v.provisioner.AwaitFresh(ctx); err != nil {
		return nil, err
	}
	if !v.cfg.Budget.Charge(source) {
		return nil, ErrLimited
	}
	l := &Login{}
	if err := authenticate(l); err != nil {
		v.report(ctx, l.Name, source, err)
		return nil, fmt.Errorf("%w: %w", ErrLogin, err)
	}
	v.cfg.Budget.Refund(source)
	if notice, ok := ctx.Value(noticeKey{}).(func(string)); ok {
		notice(l.Name)
	}
	return l, nil
}

// report reports a failed login. The name is only claimed.
func (v *Verifier) report(ctx context.Context, name, source string, err error) {
	leftOut, ok := v.cfg.Budget.Report(source)
	if !ok {
		return
	}
	if len(name) > trust.MaxOperatorName {
		name = name[:trust.MaxOperatorName]
	}
	e := events.Event{
		Type:     events.LoginRefused,
		Operator: events.Scrub(name),
		Source:   source,
		Cause:    events.BoundedText(err),
		LeftOut:  leftOut,
	}
	v.emit(e)
	v.cfg.Log.WarnContext(ctx, "login refused", "operator", e.Operator, "source", source, "err", e.Cause, "left_out",
		leftOut)
}
