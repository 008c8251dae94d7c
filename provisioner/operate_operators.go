package provisioner

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/provisioner/events"
)

// errNoOperators says that there is no list of operators to change.
var errNoOperators = errors.New("this provisioner has no operators")

// ErrNoOperator means that nobody has this name, or no longer.
var ErrNoOperator = errors.New("no such operator")

// An AddedOperator is an operator who was added.
type AddedOperator struct {
	OperatorInfo

	Chain        string `json:"chain,omitempty"` // PEM: the certificate and its issuer's, if one was asked for
	Roots        string `json:"roots"`           // PEM: the installation's
	Installation string `json:"installation"`    // `aud` of their tokens
}

// AddOperator lets an operator in over HTTPS, on every provisioner within a
// second and in this process at once. One who is there gets the new role and key
// in place of what they had: their certificate before is worthless. After an
// error it may have happened or not; adding them again is harmless, also if this
// was killed at any step: a certificate of which nobody has been told is in
// nobody's hands. The error wraps [ca.ErrRequest] or [ca.ErrAuthority] if there
// is no certificate.
func (p *Provisioner) AddOperator(ctx context.Context, n NewOperator, c Cause) (*AddedOperator, error) {
	if p.cfg.Operators == nil {
		return nil, fmt.Errorf("add operator: %w", errNoOperators)
	}
	e, err := n.entry()
	if err = errors.Join(c.Check(), err); err != nil {
		return nil, fmt.Errorf("add operator: %w: %w", ErrOperator, err)
	}
	e.By, e.Why = c.By, c.Why
	added := &AddedOperator{Roots: p.cfg.Authority.RootsPEM(), Installation: p.cfg.Installation}
	if n.Certificate {
		key, err := x509.ParsePKIXPublicKey(e.Key)
		if err != nil {
			return nil, fmt.Errorf("add operator %q: %w", n.Name, err)
		}
		issued, err := p.cfg.Authority.Issue(ca.Request{Role: wire.RoleOperator, Name: n.Name, PublicKey: key, TTL: n.TTL})
		if err != nil {
			return nil, fmt.Errorf("add operator %q: %w", n.Name, err)
		}
		e.Serial, e.Ends, e.Issuer, added.Chain = issued.Serial, issued.NotAfter, p.cfg.Authority.IssuerKeyID(), issued.Chain
	}
	told := events.Event{Type: events.OperatorAdded, Time: p.moment(), Operator: e.Name, Role: string(e.Role), Serial: e.Serial, By: c.By, Why: c.Why}
	err = p.cfg.Operators.put(ctx, e, p.now())
	if err != nil {
		return nil, fmt.Errorf("add operator %q: %w", n.Name, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "operator added", "operator", e.Name, "role", e.Role, "serial", e.Serial, "by", c.By, "why", c.Why)
	added.OperatorInfo = e.info()
	return added, nil
}

// ErrOperator means that what is said of an operator cannot be. The text lists
// all that is wrong.
var ErrOperator = errors.New("operator not accepted")

// RemoveOperator keeps an operator out, on every provisioner within a second and
// in this process at once: neither their certificate nor any token of their key
// is good. What they have in hand is finished. Removing who is removed already
// is harmless; the error is [ErrNoOperator] for a name that was never added.
func (p *Provisioner) RemoveOperator(ctx context.Context, name string, c Cause) error {
	if p.cfg.Operators == nil {
		return fmt.Errorf("remove operator: %w", errNoOperators)
	}
	if err := errors.Join(c.Check(), CheckOperatorName(name)); err != nil {
		return fmt.Errorf("remove operator: %w: %w", ErrOperator, err)
	}
	if known := p.cfg.Operators.named(name); known == nil {
		return fmt.Errorf("remove operator %q: %w", name, ErrNoOperator)
	} else if known.Removed {
		return nil
	}
	e := &OperatorEntry{Schema: OperatorSchema, Name: name, Removed: true, By: c.By, Why: c.Why}
	told := events.Event{Type: events.OperatorRemoved, Time: p.moment(), Operator: name, By: c.By, Why: c.Why}
	err := p.cfg.Operators.put(ctx, e, p.now())
	if err != nil {
		return fmt.Errorf("remove operator %q: %w", name, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "operator removed", "operator", name, "by", c.By, "why", c.Why)
	return nil
}

// OperatorIssuers returns how many certificates of operators are good at now, by the key
// id of their issuer; those of before that was kept are under "". The error wraps
// [ErrRevocationsUnknown] if the operators are not known.
func (p *Provisioner) OperatorIssuers(now time.Time) (map[string]int, error) {
	if p.cfg.Operators == nil {
		return nil, nil
	}
	if err := p.Fresh(); err != nil {
		return nil, err
	}
	return p.cfg.Operators.issuers(now), nil
}

// ListOperators returns every operator that the store knows, by name, removed
// ones too. The error wraps [ErrRevocationsUnknown] if the list may be old.
func (p *Provisioner) ListOperators(context.Context) ([]OperatorInfo, error) {
	if p.cfg.Operators == nil {
		return nil, fmt.Errorf("list operators: %w", errNoOperators)
	}
	if err := p.Fresh(); err != nil {
		return nil, fmt.Errorf("list operators: %w", err)
	}
	return p.cfg.Operators.list(), nil
}

// An AuthorityInfo is what everybody may know of the installation.
type AuthorityInfo struct {
	Installation string `json:"installation"`
	Roots        string `json:"roots"`       // PEM
	Fingerprint  string `json:"fingerprint"` // what tokens pin as their `ca`
}

// DescribeAuthority returns what everybody may know.
func (p *Provisioner) DescribeAuthority() *AuthorityInfo {
	return &AuthorityInfo{Installation: p.cfg.Installation, Roots: p.cfg.Authority.RootsPEM(), Fingerprint: p.cfg.Authority.Fingerprint()}
}
