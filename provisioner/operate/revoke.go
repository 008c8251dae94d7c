package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// Revoke bars a node until its identity is retired: brokers drop its connections, the CRL lists its certificates, and
// neither its keys nor its identity get another one. If the record cannot be read, only the name is barred.
//
// The error is [provisioner.ErrNoRecord], [trust.ErrState] if the identity is retired, [provisioner.ErrChanged] if the
// node is not as it was seen, or [trust.ErrUnacknowledged].
func (n *Nodes) Revoke(ctx context.Context, id wire.Identity, c trust.Cause, seen ...provisioner.Precondition) error {
	err := n.takeBack(ctx, "revoke", id, c, func(
		record *provisioner.Record, at trust.Revision, newest *trust.Revocation, err error,
	) (*trust.Revocation, error) {
		if errors.Is(err, trust.ErrRecord) {
			return provisioner.EntryAbout(trust.RevokedNode, &provisioner.Record{Identity: id}, n.now(), c), nil
		}
		if err != nil {
			return nil, err
		}
		switch provisioner.StateOf(record) {
		case provisioner.StateNone:
			return nil, provisioner.ErrNoRecord
		case provisioner.StateRetired:
			return nil, fmt.Errorf("%w: it is retired: its certificates are revoked, and the name is free",
				trust.ErrState)
		}
		if newest != nil && newest.Kind == trust.RevokedNode &&
			(record.State == provisioner.StateRevoked || newest.ID != record.Revoked) {
			return nil, nil
		}
		if err := cmp.Or(seen...).Check(record, at); err != nil {
			return nil, err
		}
		return provisioner.EntryAbout(trust.RevokedNode, record, n.now(), c), nil
	})
	if err == nil { // its holder shall not get the name once it is retired
		if err = n.Withdraw(ctx, id, c); errors.Is(err, trust.ErrRecord) {
			return nil // no key gets such a name
		}
	}
	return err
}

// Retire frees an identity for any key, revokes its certificates and drops its connections. It is the only way back for
// a revoked identity. The error is [provisioner.ErrNoRecord], [provisioner.ErrChanged] if the node is not as it was
// seen, or [trust.ErrUnacknowledged].
func (n *Nodes) Retire(ctx context.Context, id wire.Identity, c trust.Cause, seen ...provisioner.Precondition) error {
	return n.retire(ctx, id, false, c, seen...)
}

// Clean is [Nodes.Retire] for a Puppet node whose machine is built again: the name is kept for a one-time secret, a
// grant or an approval. A retired identity stays as it is. The error is also [trust.ErrState] if the node is enrolled
// over another protocol.
func (n *Nodes) Clean(ctx context.Context, id wire.Identity, c trust.Cause, seen ...provisioner.Precondition) error {
	return n.retire(ctx, id, true, c, seen...)
}

func (n *Nodes) retire(
	ctx context.Context, id wire.Identity, await bool, c trust.Cause, seen ...provisioner.Precondition,
) error {
	return n.takeBack(ctx, "retire", id, c, func(
		record *provisioner.Record, at trust.Revision, newest *trust.Revocation, err error,
	) (*trust.Revocation, error) {
		if err == nil && await {
			err = overPuppet(record)
		}
		if err != nil {
			return nil, err
		}
		revoked := newest != nil && newest.Kind == trust.RevokedNode
		retired := newest != nil && newest.Kind == trust.RetiredNode && record != nil &&
			(newest.ID != record.Revoked || record.State == provisioner.StateRetired)
		switch {
		case record == nil && newest == nil:
			return nil, provisioner.ErrNoRecord
		case retired && newest.Awaiting && !await: // an entry that frees the kept name
		case record == nil && !revoked, provisioner.StateOf(record) == provisioner.StateRetired && !revoked:
			return nil, nil
		case len(seen) > 0 && revoked && newest.ID != record.AppliedRevocation() &&
			provisioner.StateOf(record) != provisioner.StateRevoked:
			// The node was revoked after the operator saw it: a stolen machine's name must not become free.
			return nil, fmt.Errorf("%w: it is revoked", provisioner.ErrChanged)
		case retired:
			return nil, nil // another provisioner retired it
		}
		if err := cmp.Or(seen...).Check(record, at); err != nil {
			return nil, err
		}
		if record == nil {
			// The record was lost in a restore.
			record = &provisioner.Record{Identity: id}
		}
		e := provisioner.EntryAbout(trust.RetiredNode, record, n.now(), c)
		e.Awaiting = await
		return e, nil
	})
}

// takenBack returns the entry to write about an identity, nil for none. err is the error of reading the record.
type takenBack func(record *provisioner.Record, at trust.Revision, newest *trust.Revocation,
	err error) (*trust.Revocation, error)

// takeBack writes the entry of decide, which is called again after a conflict, and applies it to the record.
func (n *Nodes) takeBack(ctx context.Context, verb string, id wire.Identity, c trust.Cause,
	decide takenBack) (err error) {
	defer about(&err, "%s %q", verb, id)
	if err := wrong(c.Check()); err != nil {
		return err
	}
	err = trust.ErrConflict
	for range maxRounds {
		if err = n.takeBackOnce(ctx, id, decide); !errors.Is(err, trust.ErrConflict) {
			break
		}
	}
	if err != nil {
		return err
	}
	return n.provisioner.Enforce(ctx, id)
}

func (n *Nodes) takeBackOnce(ctx context.Context, id wire.Identity, decide takenBack) error {
	record, at, err := n.store.Record(ctx, id)
	if err == nil {
		err = n.provisioner.SyncRevocations(ctx, record)
	}
	newest, expected := n.provisioner.Revocations().About(id)
	entry, err := decide(record, at, newest, err)
	if err != nil || entry == nil {
		return err
	}
	return n.provisioner.Revocations().Put(ctx, entry, expected)
}
