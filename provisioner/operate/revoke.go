package operate

import (
	"context"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// Revoke keeps a node out for good: its connections are dropped within a
// second on every broker, its certificates go on the CRL, and neither its keys
// nor its identity get another one until an operator retires the identity.
//
// Once the log of revocations has the entry, every process that sees it completes the rest.
// Asking again is harmless. The error is [provisioner.ErrNoRecord], [trust.ErrState] if the identity is retired,
// [provisioner.ErrChanged] if the node is not as it was seen, or [trust.ErrUnacknowledged] if the store did
// not answer. An identity whose record cannot be read is kept out by its name alone.
func (n *Nodes) Revoke(ctx context.Context, id wire.Identity, c trust.Cause, seen ...provisioner.Seen) error {
	return n.takeBack(ctx, "revoke", id, c, func(record *provisioner.Record, at trust.Revision, newest *trust.Revocation, err error) (*trust.Revocation, error) {
		if errors.Is(err, trust.ErrRecord) {
			return provisioner.EntryAbout(trust.RevokedNode, &provisioner.Record{Identity: id}, n.now(), c)
		}
		if err != nil {
			return nil, err
		}
		switch stateOf(record) {
		case provisioner.StateNone:
			return nil, provisioner.ErrNoRecord
		case provisioner.StateRetired:
			return nil, fmt.Errorf("%w: it is retired: its certificates are revoked, and the name is free", trust.ErrState)
		}
		if newest != nil && newest.Kind == trust.RevokedNode && (record.State == provisioner.StateRevoked || newest.ID != record.Revoked) {
			return nil, nil
		}
		if err := checkSeen(record, at, seen); err != nil {
			return nil, err
		}
		return provisioner.EntryAbout(trust.RevokedNode, record, n.now(), c)
	})
}

// Retire frees an identity for any key: the machine is gone. What
// certificates it has are revoked and its connections dropped, within a second
// on every broker. Revoked identities are retired so that the name, or the same
// machine, may enroll again. Asking again is harmless. The error is [provisioner.ErrNoRecord], [provisioner.ErrChanged]
// if the node is not as it was seen, or [trust.ErrUnacknowledged] if the store did not answer.
func (n *Nodes) Retire(ctx context.Context, id wire.Identity, c trust.Cause, seen ...provisioner.Seen) error {
	return n.takeBack(ctx, "retire", id, c, func(record *provisioner.Record, at trust.Revision, newest *trust.Revocation, err error) (*trust.Revocation, error) {
		if err != nil {
			return nil, err
		}
		revoked := newest != nil && newest.Kind == trust.RevokedNode
		switch {
		case record == nil && newest == nil:
			return nil, provisioner.ErrNoRecord
		case record == nil && !revoked, stateOf(record) == provisioner.StateRetired && !revoked:
			return nil, nil
		case len(seen) > 0 && revoked && newest.ID != record.AppliedRevocation() && stateOf(record) != provisioner.StateRevoked: // a stolen machine's name must not be freed
			return nil, fmt.Errorf("%w: it is revoked", provisioner.ErrChanged)
		case record != nil && newest != nil && newest.Kind == trust.RetiredNode && newest.ID != record.Revoked:
			return nil, nil // by another provisioner
		}
		if err := checkSeen(record, at, seen); err != nil {
			return nil, err
		}
		if record == nil {
			// Revoked, and its record lost with what a restored store has forgotten.
			record = &provisioner.Record{Identity: id}
		}
		return provisioner.EntryAbout(trust.RetiredNode, record, n.now(), c)
	})
}

// checkSeen returns [provisioner.ErrChanged] unless a record at a revision is as it was seen.
func checkSeen(record *provisioner.Record, at trust.Revision, seen []provisioner.Seen) error {
	for _, s := range seen {
		if err := s.Check(record, at); err != nil {
			return err
		}
	}
	return nil
}

// takenBack returns the entry to write about an identity, nil for none, by its record, the newest
// entry about it, and why the record could not be read.
type takenBack func(record *provisioner.Record, at trust.Revision, newest *trust.Revocation, err error) (*trust.Revocation, error)

// takeBack writes the entry that decide makes of what is known of an identity, nil for none, and
// brings the record to it. It decides anew where another entry came first.
func (n *Nodes) takeBack(ctx context.Context, verb string, id wire.Identity, c trust.Cause, decide takenBack) (err error) {
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

// takeBackOnce returns [trust.ErrConflict] if another entry came first.
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

// stateOf returns the state of an identity by its record, which may be nil.
func stateOf(r *provisioner.Record) provisioner.State {
	if r == nil {
		return provisioner.StateNone
	}
	return r.State
}
