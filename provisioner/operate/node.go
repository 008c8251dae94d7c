package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
)

// Nodes are the machines on record.
type Nodes struct {
	*base

	command func(ctx context.Context, c wire.Command, key []byte) (*wire.Obeyed, error)
	tokens  trust.TokenVerifier
}

// Bounds of a grant's life.
const (
	DefaultGrantTTL = time.Hour      // a walk to the machine
	MaxGrantTTL     = 24 * time.Hour // a shipment; an open door should not be forgotten
)

// A GrantOrder is what a grant is to be.
type GrantOrder struct {
	// ID is the grant's: a repeated order keeps it. Empty makes a new one.
	ID      string
	KeyHash string        // 64 hex digits: that key alone; any if empty
	TTL     time.Duration // [MaxGrantTTL] at most; 0 is [DefaultGrantTTL]
	Seen    provisioner.Seen
}

// check returns what is wrong with the order itself.
func (o *GrantOrder) check(c trust.Cause) error {
	err := errors.Join(c.Check(), checkOrderID(o.ID))
	if o.KeyHash != "" {
		err = errors.Join(err, trust.CheckKeyHash(o.KeyHash))
	}
	if o.TTL < time.Minute || o.TTL > MaxGrantTTL {
		err = errors.Join(err, fmt.Errorf("for %v, want 1m to %v", o.TTL, MaxGrantTTL))
	}
	return wrong(err)
}

// Grant lets one other key take the identity over, once. It replaces an earlier grant for the identity, and is written
// over that one alone: an order that comes late does not take back what was ordered since. A grant with the same id,
// spent or not, is the answer to a repeated order.
//
// The error is [provisioner.ErrNoRecord], or [trust.ErrState] if the identity is free or revoked, if the grant with
// this id was used and another one was given since, or if another operator gives one meanwhile. After any other it may
// have happened, and asking again is harmless.
func (n *Nodes) Grant(ctx context.Context, id wire.Identity, o GrantOrder, c trust.Cause) (_ *orders.Grant, err error) {
	defer about(&err, "grant %q", id)
	o.TTL = cmp.Or(o.TTL, DefaultGrantTTL)
	if err := o.check(c); err != nil {
		return nil, err
	}
	record, at, err := n.store.Record(ctx, id)
	if err == nil {
		err = n.grantable(record, o.KeyHash)
	}
	if err != nil {
		return nil, err
	}
	newest, after, err := n.logs.Grant(id)
	if err != nil && o.ID != "" { // one that cannot be read is replaced
		return nil, err
	}
	if o.ID == "" {
		o.ID = wire.NewID()
	} else if newest != nil && newest.ID == o.ID {
		return newest, nil
	} else if err := n.grantUsed(ctx, id, o.ID); err != nil {
		return nil, err
	}
	if err := o.Seen.Check(record, at); err != nil {
		return nil, err
	}
	now := n.now()
	g := &orders.Grant{
		ID:        o.ID,
		Identity:  id,
		KeyHash:   o.KeyHash,
		At:        now,
		Owned:     record.OwnedSince,
		ExpiresAt: now.Add(o.TTL),
		By:        c.By,
		Why:       c.Why,
	}
	e := n.event(events.Granted, c)
	e.Node = string(id)
	if _, err := n.logs.Grants.Put(ctx, g.LogKey(), g, after); err != nil {
		return nil, changedMeanwhile(err)
	}
	n.report(ctx, "takeover granted", e, "node", id, "until", g.ExpiresAt)
	return g, nil
}

// grantable returns why the identity of a record cannot be granted to a key.
func (n *Nodes) grantable(r *provisioner.Record, keyHash string) error {
	if r == nil {
		return fmt.Errorf("%w: a name that was never seen needs no grant, an allow-list entry is enough", provisioner.ErrNoRecord)
	}
	revocations := n.provisioner.Revocations()
	switch {
	case r.State == provisioner.StateRetired:
		return fmt.Errorf("%w: it is retired, any key may have it", trust.ErrState)
	case r.State == provisioner.StateRevoked || revocations.Outstanding(r.Identity, r.AppliedRevocation()) != nil:
		return fmt.Errorf("%w: it is revoked, retire it first", trust.ErrState)
	case keyHash != "" && revocations.Key(keyHash) != nil:
		return fmt.Errorf("%w: the key: %w", trust.ErrState, revocations.Key(keyHash).Err())
	}
	return nil
}

// grantUsed returns an error if a record of the identity has spent the grant: another one was given since.
func (n *Nodes) grantUsed(ctx context.Context, id wire.Identity, grant string) error {
	history, _, err := n.store.History(ctx, id)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(history, func(r provisioner.Revised) bool { return r.Record.Grant == grant }) {
		return fmt.Errorf("%w: this order was carried out and used, and another one was given since", trust.ErrState)
	}
	return nil
}
