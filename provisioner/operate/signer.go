package operate

import (
	"context"
	"errors"
	"fmt"

	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// Signers are the signers of trusted tokens.
type Signers struct{ *base }

// Add trusts a signer's tokens, even if the signer was removed. An existing signer gets the new name and limits. The
// error is [trust.ErrState] if another signer has the name.
func (s *Signers) Add(ctx context.Context, n trust.NewSigner, c trust.Cause) (_ *trust.SignerInfo, err error) {
	defer about(&err, "add signer %.80q", n.Name)
	e, err := n.Entry()
	if err = wrong(c.Check(), err); err != nil {
		return nil, err
	}
	e.By, e.Why, e.At = c.By, c.Why, s.now()
	added := s.event(events.SignerAdded, c)
	added.Signer = e.ID
	err = s.cfg.Signers.CheckName(e)
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
	return s.info(e.ID), nil
}

func (s *Signers) info(id jwt.SignerID) *trust.SignerInfo {
	for _, i := range s.cfg.Signers.List() {
		if i.ID == id {
			return &i
		}
	}
	return nil
}

// Remove makes a signer's tokens invalid, even if provisioner.yaml lists it or this provisioner does not know it.
// Enrolled nodes stay. It returns the number of signers left, which may be 0, since a stolen key must not stay valid.
func (s *Signers) Remove(ctx context.Context, id jwt.SignerID, c trust.Cause) (left int, err error) {
	defer about(&err, "remove signer %.80q", string(id))
	if err := wrong(c.Check(), trust.CheckSignerID(id)); err != nil {
		return 0, err
	}
	// End the signer's entry, and also the signer in configuration files: another provisioner may list it.
	entries, name := []string{string(id)}, ""
	if i := s.info(id); i != nil {
		if i.Removed {
			return s.cfg.Signers.Trusted(), nil
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
	left = s.cfg.Signers.Trusted()
	s.report(ctx, "signer removed", removed, "signer", id, "name", name, "left", left)
	if left == 0 {
		s.log.WarnContext(ctx, "no signer is left: no node can enroll until one is added")
	}
	return left, nil
}

// List returns every signer by name, removed ones too. The error wraps [trust.ErrRevocationsUnknown] if the list may be
// stale.
func (s *Signers) List(context.Context) ([]trust.SignerInfo, error) {
	if err := s.provisioner.Fresh(); err != nil {
		return nil, fmt.Errorf("list signers: %w", err)
	}
	return s.cfg.Signers.List(), nil
}

// replaceEntry ends an entry before another one replaces it, and returns [trust.ErrState] if it was ended meanwhile.
// After a crash between the writes, neither is in force.
func (b *base) replaceEntry(ctx context.Context, kind trust.RevocationKind, entry, name string, c trust.Cause) error {
	if trust.Ended(b.logs.Revocations, kind, entry) != nil {
		return nil
	}
	return changedMeanwhile(b.putEnd(ctx, kind, entry, name, c))
}

func (b *base) endEntry(ctx context.Context, kind trust.RevocationKind, entry, name string, c trust.Cause) error {
	err := b.putEnd(ctx, kind, entry, name, c)
	if errors.Is(err, trust.ErrConflict) { // ended before
		return nil
	}
	return err
}

func (b *base) putEnd(ctx context.Context, kind trust.RevocationKind, entry, name string, c trust.Cause) error {
	e := trust.NewRevocation(kind, b.now(), c)
	e.Entry, e.Name = entry, name
	return b.provisioner.Revocations().Put(ctx, e, 0)
}
