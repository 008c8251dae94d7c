package operate

import (
	"context"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// Signers are those whose tokens are good.
type Signers struct {
	*base

	signers *trust.Signers
}

// errNoSigners says that the signers are not this provisioner's to change.
var errNoSigners = errors.New("the signers of this provisioner are fixed")

// Add makes a signer's tokens good, on every provisioner within a second
// and in this process at once. A signer that was removed is good again, and one
// that is there gets the new name and limits. It returns the signer as it now
// is. The error is [trust.ErrState] if another signer has the name: policies and logs
// tell signers apart by it.
func (s *Signers) Add(ctx context.Context, n trust.NewSigner, c trust.Cause) (_ *trust.SignerInfo, err error) {
	defer about(&err, "add signer %.80q", n.Name)
	if s.signers == nil {
		return nil, errNoSigners
	}
	e, err := n.Entry()
	if err = wrong(c.Check(), err); err != nil {
		return nil, err
	}
	e.By, e.Why, e.At = c.By, c.Why, s.now()
	added := s.event(events.SignerAdded, c)
	added.Signer = e.ID
	err = s.signers.CheckName(e)
	before, _ := s.logs.Signers.Get(e.LogKey())
	if err == nil && before.Value != nil {
		err = s.replaceEntry(ctx, trust.RemovedSigner, before.Value.Entry, before.Value.Name, c)
	}
	if err == nil {
		_, err = s.logs.Signers.Put(ctx, e.LogKey(), e, before.Revision)
		err = changedMeanwhile(err)
	}
	if err != nil {
		return nil, err
	}
	s.report(ctx, "signer added", added, "signer", e.ID, "name", e.Name)
	for _, i := range s.signers.List() {
		if i.ID == e.ID {
			return &i, nil
		}
	}
	return nil, errors.New("written and not found")
}

// Remove makes the tokens of a signer worthless, on every provisioner
// within a second and in this process at once, also where provisioner.yaml has
// it, and also if this provisioner has never heard of it. Nodes that enrolled
// with its tokens stay. It returns how many signers are left.
//
// The last one can be removed, too: a stolen key must not go on working for
// want of another one. Then nobody enrolls until a signer is added; renewals
// and the fleet go on.
func (s *Signers) Remove(ctx context.Context, id jwt.SignerID, c trust.Cause) (left int, err error) {
	defer about(&err, "remove signer %.80q", string(id))
	if s.signers == nil {
		return 0, errNoSigners
	}
	if err := wrong(c.Check(), trust.CheckSignerID(id)); err != nil {
		return 0, err
	}
	// With its entry, the signer of all configuration files: this provisioner's may not have it.
	entries, name := []string{string(id)}, ""
	for _, i := range s.signers.List() {
		if i.ID != id {
			continue
		}
		if i.Removed {
			return s.signers.Trusted(), nil
		}
		name = i.Name
	}
	if e, _ := s.logs.Signers.Get(string(id)); e.Value != nil {
		entries = append(entries, e.Value.Entry)
	}
	removed := s.event(events.SignerRemoved, c)
	removed.Signer = id
	for _, entry := range entries {
		if err := s.endEntry(ctx, trust.RemovedSigner, entry, name, c); err != nil {
			return 0, err
		}
	}
	left = s.signers.Trusted()
	s.report(ctx, "signer removed", removed, "signer", id, "name", name, "left", left)
	if left == 0 {
		s.log.WarnContext(ctx, "no signer is left: no node enrolls until one is added")
	}
	return left, nil
}

// List returns every signer that this process knows, by name, removed
// ones too. The error wraps [trust.ErrRevocationsUnknown] if the list may be old.
func (s *Signers) List(context.Context) ([]trust.SignerInfo, error) {
	if s.signers == nil {
		return nil, fmt.Errorf("list signers: %w", errNoSigners)
	}
	if err := s.provisioner.Fresh(); err != nil {
		return nil, fmt.Errorf("list signers: %w", err)
	}
	return s.signers.List(), nil
}

// replaceEntry ends an entry in whose place another one is about to be written: the order is not to undo a removal that it
// has not seen, which is [trust.ErrState]. A process that dies in between leaves neither in force.
func (b *base) replaceEntry(ctx context.Context, kind trust.RevocationKind, entry, name string, c trust.Cause) error {
	if trust.Ended(b.logs.Revocations, kind, entry) != nil {
		return nil
	}
	return changedMeanwhile(b.putEnd(ctx, kind, entry, name, c))
}

// endEntry writes that an entry about a signer or an operator does not count any more. Writing it
// again is harmless.
func (b *base) endEntry(ctx context.Context, kind trust.RevocationKind, entry, name string, c trust.Cause) error {
	err := b.putEnd(ctx, kind, entry, name, c)
	if errors.Is(err, trust.ErrConflict) { // it was ended before
		return nil
	}
	return err
}

// putEnd writes the entry of [base.endEntry]. The error is [trust.ErrConflict] if it was ended before.
func (b *base) putEnd(ctx context.Context, kind trust.RevocationKind, entry, name string, c trust.Cause) error {
	return b.provisioner.Revocations().Put(ctx, &trust.Revocation{
		Schema: trust.RevocationSchema,
		ID:     wire.NewID(),
		Kind:   kind,
		At:     b.now(),
		By:     c.By,
		Why:    c.Why,
		Entry:  entry,
		Name:   name,
	}, 0)
}
