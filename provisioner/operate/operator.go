package operate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// Operators are those that may come in over HTTPS.
type Operators struct {
	*base

	cfg provisioner.Config
}

// ErrOperator means that what is said of an operator cannot be. The text lists all that is wrong.
var ErrOperator = errors.New("operator not accepted")

// An AddedOperator is an operator that was added.
type AddedOperator struct {
	OperatorInfo

	Chain        string `json:"chain,omitempty"` // PEM: the certificate and its issuer's, if one was asked for
	Roots        string `json:"roots"`           // PEM: the installation's
	Installation string `json:"installation"`    // `aud` of their tokens
}

// Add lets an operator in over HTTPS, on every provisioner within a second and in this process at once. An operator that
// is there gets the new role and key in place of the former ones: the certificate before is worthless. After an error it
// may have happened or not; adding it again is harmless. The error wraps [ca.ErrRequest] or [ca.ErrAuthority] if there is
// no certificate, and is [trust.ErrState] if the operator was changed meanwhile.
func (o *Operators) Add(ctx context.Context, n NewOperator, c trust.Cause) (_ *AddedOperator, err error) {
	defer about(&err, "add operator %.80q", n.Name)
	e, err := n.entry()
	if err = errors.Join(c.Check(), err); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOperator, err)
	}
	before, _ := o.logs.Operators.Get(n.Name)
	e.At, e.By, e.Why = o.now(), c.By, c.Why
	added := &AddedOperator{Roots: o.cfg.Authority.RootsPEM(), Installation: o.cfg.Installation}
	if n.Certificate {
		if added.Chain, err = o.issue(e, n.TTL); err != nil {
			return nil, err
		}
	}
	event := o.event(events.OperatorAdded, c)
	event.Operator, event.Role, event.Serial = e.Name, string(e.Role), e.Serial
	if former := before.Value; former != nil { // a store that is restored must not have it again
		if err := o.replaceEntry(ctx, trust.RemovedOperator, former.ID, n.Name, c); err != nil {
			return nil, err
		}
	}
	if _, err := o.logs.Operators.Put(ctx, e.LogKey(), e, before.Revision); err != nil {
		return nil, changedMeanwhile(err)
	}
	o.report(ctx, "operator added", event, "operator", e.Name, "role", e.Role, "serial", e.Serial)
	added.OperatorInfo = describe(trust.KnownOperator{OperatorEntry: e})
	return added, nil
}

// issue signs a certificate over the key of an entry, which it completes.
func (o *Operators) issue(e *trust.OperatorEntry, ttl time.Duration) (chain string, err error) {
	key, err := x509.ParsePKIXPublicKey(e.Key)
	if err != nil {
		return "", err
	}
	issued, err := o.cfg.Authority.Issue(ca.Request{Role: wire.RoleOperator, Name: e.Name, PublicKey: key, TTL: ttl})
	if err != nil {
		return "", err
	}
	e.Serial, e.Ends, e.Issuer = issued.Serial, issued.NotAfter, o.cfg.Authority.IssuerKeyID()
	return issued.Chain, nil
}

// Remove keeps an operator out, on every provisioner within a second and in this process at once: neither the certificate
// nor any token of the key is good. Requests in progress are finished. Removing an operator that is removed already is
// harmless; the error is [trust.ErrNoOperator] for a name that was never added.
func (o *Operators) Remove(ctx context.Context, name string, c trust.Cause) (err error) {
	defer about(&err, "remove operator %.80q", name)
	if err := errors.Join(c.Check(), trust.CheckOperatorName(name)); err != nil {
		return fmt.Errorf("%w: %w", ErrOperator, err)
	}
	known, found := o.logs.Operators.Of(name)
	switch {
	case !found:
		return trust.ErrNoOperator
	case known.Ended != nil:
		return nil
	}
	e := o.event(events.OperatorRemoved, c)
	e.Operator = name
	if err := o.endEntry(ctx, trust.RemovedOperator, known.ID, name, c); err != nil {
		return err
	}
	o.report(ctx, "operator removed", e, "operator", name)
	return nil
}

// List returns every operator that the store knows, by name, removed ones too. The error wraps
// [trust.ErrRevocationsUnknown] if the list may be old.
func (o *Operators) List(context.Context) ([]OperatorInfo, error) {
	if err := o.provisioner.Fresh(); err != nil {
		return nil, fmt.Errorf("list operators: %w", err)
	}
	list := []OperatorInfo{}
	for _, e := range o.logs.Operators.List() {
		list = append(list, describe(e))
	}
	return list, nil
}

// Issuers returns how many certificates of operators are good at now, by the key id of their issuer. The error wraps
// [trust.ErrRevocationsUnknown] if the operators are not known.
func (o *Operators) Issuers(now time.Time) (map[string]int, error) {
	if err := o.provisioner.Fresh(); err != nil {
		return nil, err
	}
	by := make(map[string]int)
	for _, e := range o.logs.Operators.List() {
		if e.Ended == nil && e.Serial != "" && now.Before(e.Ends) {
			by[e.Issuer]++
		}
	}
	return by, nil
}

// A NewOperator is an operator who is to be added.
type NewOperator struct {
	// Name is what events and history call them; see [trust.CheckOperatorName].
	Name string `json:"name"`

	// Role is required.
	Role trust.OperatorRole `json:"role"`

	// Public is their public key, P-256 or Ed25519, as [jwt.ParseSigner] reads it.
	// Whoever asks has seen to it that they hold the private half.
	Public []byte `json:"public"`

	// Certificate asks for a certificate over the key.
	Certificate bool `json:"certificate,omitempty"`

	// TTL is the life of the certificate; 0 is the authority's default, 720h.
	TTL time.Duration `json:"ttl_ns,omitempty"`
}

// entry checks what was given, all of it, and returns it as an entry.
func (n *NewOperator) entry() (*trust.OperatorEntry, error) {
	e := &trust.OperatorEntry{Schema: trust.OperatorSchema, ID: wire.NewID(), Name: n.Name, Role: n.Role}
	errs := []error{trust.CheckOperatorName(n.Name), n.Role.Check()}
	if n.TTL != 0 && !n.Certificate {
		errs = append(errs, errors.New("a lifetime without a certificate: tokens have their own"))
	}
	s, err := jwt.ParseSigner(n.Public)
	if err == nil {
		if err = jwt.CheckOperatorKey(s.Key); err == nil {
			e.Key, err = x509.MarshalPKIXPublicKey(s.Key)
		}
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return e, nil
}

// An OperatorInfo is an operator as this provisioner knows them.
type OperatorInfo struct {
	Name    string             `json:"name"`
	Role    trust.OperatorRole `json:"role,omitempty"`
	KeyType string             `json:"key_type,omitempty"` // as [ca.KeyType] names it
	Serial  string             `json:"serial,omitempty"`   // of the certificate, if they have one
	Ends    time.Time          `json:"ends,omitzero"`      // of the certificate
	Removed bool               `json:"removed"`
	By      string             `json:"by"`
	Why     string             `json:"why,omitempty"`
	At      time.Time          `json:"at"`
}

// describe returns what is told of an operator.
func describe(o trust.KnownOperator) OperatorInfo {
	if by := o.Ended; by != nil {
		return OperatorInfo{Name: o.Name, Removed: true, By: by.By, Why: by.Why, At: by.At}
	}
	i := OperatorInfo{Name: o.Name, Role: o.Role, Serial: o.Serial, Ends: o.Ends, By: o.By, Why: o.Why, At: o.At}
	if key, err := x509.ParsePKIXPublicKey(o.Key); err == nil { // which was checked
		i.KeyType, _ = ca.KeyType(key)
	}
	return i
}
