package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// How long a one-time token can be used.
const (
	DefaultOneTimeTTL = 6 * time.Hour // the default of Foreman's smart proxy
	MaxOneTimeTTL     = 7 * 24 * time.Hour

	// validatedFor is how long a key can be validated again, for a caller that lost the answer.
	validatedFor = 10 * time.Minute
)

// OneTime returns a new secret with which a Puppet agent with any key enrolls as the node, once, even if the name has
// no record. It replaces an earlier grant. The secret is kept as a hash. Keys that wait for the name need not be named,
// since they do not have the secret.
//
// The error is [provisioner.ErrChanged] if the node is not as it was seen, or [trust.ErrState] if the identity is
// revoked, or enrolled over another protocol.
func (n *Nodes) OneTime(
	ctx context.Context, id wire.Identity, ttl time.Duration, c trust.Cause, seen ...provisioner.Precondition,
) (secret string, _ *orders.Grant, err error) {
	defer about(&err, "grant %q", id)
	ttl = cmp.Or(ttl, DefaultOneTimeTTL)
	err = c.Check()
	if ttl < time.Minute || ttl > MaxOneTimeTTL {
		err = errors.Join(err, fmt.Errorf("for %v, want 1m to %v", ttl, MaxOneTimeTTL))
	}
	if err = cmp.Or(wrong(err), n.judge(id)); err != nil {
		return "", nil, err
	}
	secret, hash := orders.NewSecret()
	e := n.event(events.Granted, c)
	e.Node = string(id)
	n.oneTime.Lock()
	defer n.oneTime.Unlock()
	g, err := trust.Change(ctx, n.logs.Grants, id.SubjectToken(),
		func(trust.Entry[*orders.Grant]) (*orders.Grant, error) {
			r, at, err := n.store.Record(ctx, id)
			if err == nil {
				err = cmp.Or(overPuppet(r), cmp.Or(seen...).Check(r, at))
			}
			if err != nil {
				return nil, err
			}
			if provisioner.StateOf(r) == provisioner.StateRevoked ||
				n.provisioner.Revocations().Outstanding(id, r.AppliedRevocation()) != nil {
				return nil, errNameRevoked(id)
			}
			now := n.now()
			return &orders.Grant{
				ID:        wire.NewID(),
				Identity:  id,
				At:        now,
				ExpiresAt: now.Add(ttl),
				Secret:    hash,
				By:        c.By,
				Why:       c.Why,
			}, nil
		})
	if err != nil {
		return "", nil, err
	}
	n.report(ctx, "one-time token made", e, "node", id, "until", g.ExpiresAt)
	return secret, g, nil
}

// overPuppet returns [trust.ErrState] if r, or nil, is enrolled over another protocol.
func overPuppet(r *provisioner.Record) error {
	if r != nil && r.State != provisioner.StateRetired && r.Protocol != provisioner.ProtocolPuppet {
		return fmt.Errorf("%w: it is enrolled over protocol %s", trust.ErrState, r.Protocol)
	}
	return nil
}

var errNoOneTime = errors.New("no open one-time token")

// changeOneTime writes what next makes of the open grant with a one-time token. The error is errNoOneTime if there is
// none.
func (n *Nodes) changeOneTime(
	ctx context.Context, id wire.Identity, next func(*orders.Grant) error,
) error {
	_, err := trust.Change(ctx, n.logs.Grants, id.SubjectToken(),
		func(trust.Entry[*orders.Grant]) (*orders.Grant, error) {
			newest, _, err := n.logs.Grant(id)
			if err != nil {
				return nil, err
			}
			r, _, err := n.store.Record(ctx, id)
			if err != nil {
				return nil, err
			}
			if !n.openOneTime(newest, r) {
				return nil, errNoOneTime
			}
			g := *newest
			return &g, next(&g)
		})
	return err
}

func (n *Nodes) openOneTime(g *orders.Grant, r *provisioner.Record) bool {
	return g != nil && g.Secret != "" && g.Open(n.now()) && (r == nil || r.Grant != g.ID)
}

// Withdraw ends the one-time token of a node, if one is open.
func (n *Nodes) Withdraw(ctx context.Context, id wire.Identity, c trust.Cause) (err error) {
	defer about(&err, "withdraw the one-time token of %q", id)
	if err := wrong(c.Check()); err != nil {
		return err
	}
	err = n.changeOneTime(ctx, id, func(g *orders.Grant) error {
		g.ExpiresAt, g.By, g.Why = n.now(), c.By, c.Why
		return nil
	})
	if errors.Is(err, errNoOneTime) {
		return nil
	}
	if err == nil {
		n.log.InfoContext(ctx, "one-time token withdrawn", "node", id, "by", c.By, "why", c.Why)
	}
	return err
}

// OneTimes returns the names with an open one-time token, sorted. Names that a key was validated for are left out.
func (n *Nodes) OneTimes(ctx context.Context) ([]wire.Identity, error) {
	var ids []wire.Identity
	for _, e := range n.logs.Grants.All() {
		if e.Value == nil || e.Value.Secret == "" || !e.Value.Open(n.now()) || e.Value.KeyHash != "" {
			continue
		}
		g, _, err := n.logs.Grant(e.Value.Identity)
		if err != nil {
			return nil, err
		}
		r, _, err := n.store.Record(ctx, e.Value.Identity)
		if err != nil {
			return nil, err
		}
		if n.openOneTime(g, r) {
			ids = append(ids, g.Identity)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Validate reports whether secret is the open one-time token of the node, for a caller that signs the key. It binds
// the secret to the key, and for a few minutes the key can be validated again.
func (n *Nodes) Validate(
	ctx context.Context, id wire.Identity, secret wire.Secret, keyHash string, c trust.Cause,
) (valid bool, err error) {
	defer about(&err, "validate the one-time token of %q", id)
	if err := wrong(c.Check(), trust.CheckKeyHash(keyHash)); err != nil {
		return false, err
	}
	err = n.changeOneTime(ctx, id, func(g *orders.Grant) error {
		if !g.Holds(string(secret)) || g.KeyHash != "" && g.KeyHash != keyHash {
			return errNoOneTime
		}
		if until := n.now().Add(validatedFor); g.KeyHash == "" && until.Before(g.ExpiresAt) {
			g.ExpiresAt = until
		}
		g.KeyHash = keyHash
		return nil
	})
	if errors.Is(err, errNoOneTime) {
		return false, nil
	}
	if err == nil {
		n.log.InfoContext(ctx, "one-time token validated", "node", id, "key", keyHash, "by", c.By)
	}
	return err == nil, err
}
