package operate

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// A ChoriaFleet reaches Choria servers in their fleet. Its errors are those of [Nodes.Command].
type ChoriaFleet interface {
	// Prepare returns why the server cannot be provisioned again now.
	Prepare(ctx context.Context, id wire.Identity) error

	// Command sends the verb with the shared secret of the server's token.
	Command(ctx context.Context, id wire.Identity, verb wire.Verb, secret wire.Secret) error
}

// commandChoria checks the secret first: a server writes a wrong one to its log.
func (n *Nodes) commandChoria(
	ctx context.Context, r *provisioner.Record, o CommandOrder, c trust.Cause,
) (*wire.CommandAccepted, error) {
	switch {
	case n.choria == nil:
		return nil, fmt.Errorf("%w: this provisioner has no gateway for Choria servers", ErrNodeAway)
	case o.Verb == wire.VerbReconfigure:
		return nil, wrong(errors.New("a Choria server knows no reconfigure: reprovision gives it its configuration"))
	case o.Secret == "":
		return nil, wrong(errors.New("a Choria server wants the shared secret of its token: give --secret-file"))
	case !bytes.Equal(wire.CommandKey(o.Secret, r.Identity), r.CommandKey):
		return nil, wrong(errors.New("the secret is not that of the token that the server enrolled with"))
	}
	if o.Verb == wire.VerbReprovision {
		if err := n.grantReprovision(ctx, r, o.ID, c); err != nil {
			return nil, err
		}
	}
	err := n.choria.Command(ctx, r.Identity, o.Verb, o.Secret)
	if err != nil && !errors.Is(err, ErrNodeSilent) && o.Verb == wire.VerbReprovision {
		_, voidErr := n.provisioner.VoidReprovision(ctx, r.Identity)
		err = errors.Join(err, voidErr)
	}
	return &wire.CommandAccepted{}, err
}

// grantReprovision lets the server come back with another key, since nothing of it signs with its present one. If the
// process dies before the server has the order, the grant expires.
func (n *Nodes) grantReprovision(ctx context.Context, r *provisioner.Record, id string, c trust.Cause) error {
	newest, after, err := n.logs.Grant(r.Identity)
	if err != nil {
		return err
	}
	if newest != nil && newest.ID == id {
		return nil // the order is repeated
	}
	if _, err := n.grantedKey(ctx, r.Identity, ""); err != nil {
		return err
	}
	if err := n.choria.Prepare(ctx, r.Identity); err != nil {
		return err
	}
	now := n.now()
	g := &orders.Grant{
		ID:          id,
		Identity:    r.Identity,
		At:          now,
		Owned:       r.OwnedSince,
		ExpiresAt:   now.Add(DefaultGrantTTL),
		Reprovision: true,
		By:          c.By,
		Why:         c.Why,
	}
	_, err = n.logs.Grants.Put(ctx, g.LogKey(), g, after)
	return changedMeanwhile(err)
}
