package operate

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// Operators are the operators with access over HTTPS.
type Operators struct{ *base }

// An AddedOperator is the result of [Operators.Add].
type AddedOperator struct {
	OperatorInfo

	Chain        string `json:"chain,omitempty"` // PEM, with the issuer's certificate, if requested
	Roots        string `json:"roots"`           // PEM
	Installation string `json:"installation"`    // `aud` of the operator's tokens
}

// Add gives an operator access over HTTPS. An existing operator gets the new role and key, and loses the former
// certificate. The error wraps [ca.ErrRequest] or [ca.ErrAuthority] if there is no certificate, and is [trust.ErrState]
// if the operator was changed meanwhile.
func (o *Operators) Add(ctx context.Context, n NewOperator, c trust.Cause) (_ *AddedOperator, err error) {
	defer about(&err, "add operator %.80q", n.Name)
	e, err := n.entry()
	if err = wrong(c.Check(), err); err != nil {
		return nil, err
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
	if former := before.Value; former != nil { // a restore must not bring it back
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

func (o *Operators) issue(e *trust.OperatorEntry, ttl time.Duration) (chain string, err error) {
	key, err := x509.ParsePKIXPublicKey(e.Key)
	if err != nil {
		return "", err
	}
	ttl = cmp.Or(ttl, min(ca.DefaultMaxTTL, o.cfg.Authority.MaxTTL()))
	issued, err := o.cfg.Authority.Issue(ca.Request{Role: wire.RoleOperator, Name: e.Name, PublicKey: key, TTL: ttl})
	if err != nil {
		return "", err
	}
	e.Serial, e.Ends, e.Issuer = issued.Serial, issued.NotAfter, o.cfg.Authority.IssuerKeyID()
	return issued.Chain, nil
}

// Remove ends an operator's access: certificate and tokens become invalid. The error is [trust.ErrNoOperator] for an
// unknown name.
func (o *Operators) Remove(ctx context.Context, name string, c trust.Cause) (err error) {
	defer about(&err, "remove operator %.80q", name)
	if err := wrong(c.Check(), trust.CheckOperatorName(name)); err != nil {
		return err
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

// List returns every operator by name, removed ones too. The error wraps [trust.ErrRevocationsUnknown] if the list may
// be stale.
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

// Issuers counts valid operators' certificates by their issuer's key id. The error wraps [trust.ErrRevocationsUnknown]
// if the operators are not known.
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

// maxNames bounds an entry.
const maxNames = 64

// A NewOperator describes an operator to add.
type NewOperator struct {
	// Name must pass [trust.CheckOperatorName].
	Name string `json:"name"`

	Role trust.OperatorRole `json:"role"`

	// Names are the nodes that [trust.RoleForeman] may manage. At least one, and none for other roles.
	Names []wire.Pattern `json:"names,omitempty"`

	// Sites limit the roles viewer and operator.
	Sites trust.Sites `json:"sites,omitempty"`

	// Public is a P-256, P-384 or Ed25519 key as [jwt.ParseSigner] reads it. The caller has verified that the operator
	// holds the private key.
	Public []byte `json:"public"`

	Certificate bool `json:"certificate,omitempty"`

	// TTL is the lifetime of the certificate; 0: 90 days, or less if the authority's certificates last less.
	TTL time.Duration `json:"ttl_ns,omitempty"`
}

func (n *NewOperator) entry() (*trust.OperatorEntry, error) {
	e := &trust.OperatorEntry{
		Schema: trust.OperatorSchema,
		ID:     wire.NewID(),
		Name:   n.Name,
		Role:   n.Role,
		Names:  n.Names,
		Sites:  n.Sites,
	}
	errs := []error{trust.CheckOperatorName(n.Name), n.Role.Check(), n.checkNames(), n.Sites.Check(n.Role)}
	if n.TTL != 0 && !n.Certificate {
		errs = append(errs, errors.New("a lifetime without a certificate: want a certificate, or no lifetime"))
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

func (n *NewOperator) checkNames() error {
	foreman := n.Role == trust.RoleForeman
	switch {
	case !foreman && len(n.Names) > 0:
		return fmt.Errorf("names for the role %s: only the role foreman is limited to names", n.Role)
	case !foreman:
		return nil
	case !n.Certificate:
		return errors.New("the role foreman without a certificate: Foreman has no other credential")
	case len(n.Names) == 0 || len(n.Names) > maxNames:
		return fmt.Errorf("%d patterns of names, want 1 to %d: those of the nodes that Foreman may manage",
			len(n.Names), maxNames)
	}
	var errs []error
	for _, p := range n.Names {
		if _, err := wire.ParsePattern(string(p)); err != nil {
			errs = append(errs, err)
		} else if orders.AnyName(p) {
			errs = append(errs, fmt.Errorf("names: %q covers every name: Foreman needs patterns of its nodes", p))
		}
	}
	return errors.Join(errs...)
}

// An OperatorInfo is an operator as listed.
type OperatorInfo struct {
	Name    string             `json:"name"`
	Role    trust.OperatorRole `json:"role,omitempty"`
	Names   []wire.Pattern     `json:"names,omitempty"`
	Sites   trust.Sites        `json:"sites,omitempty"`
	KeyType string             `json:"key_type,omitempty"` // see [ca.KeyType]
	Serial  string             `json:"serial,omitempty"`   // of the certificate, if any
	Ends    time.Time          `json:"ends,omitzero"`      // of the certificate
	Removed bool               `json:"removed"`
	By      string             `json:"by"`
	Why     string             `json:"why,omitempty"`
	At      time.Time          `json:"at"`
}

func describe(o trust.KnownOperator) OperatorInfo {
	if by := o.Ended; by != nil {
		return OperatorInfo{Name: o.Name, Removed: true, By: by.By, Why: by.Why, At: by.At}
	}
	i := OperatorInfo{
		Name:   o.Name,
		Role:   o.Role,
		Names:  o.Names,
		Sites:  o.Sites,
		Serial: o.Serial,
		Ends:   o.Ends,
		By:     o.By,
		Why:    o.Why,
		At:     o.At,
	}
	if key, err := x509.ParsePKIXPublicKey(o.Key); err == nil { // checked when written
		i.KeyType, _ = ca.KeyType(key)
	}
	return i
}
