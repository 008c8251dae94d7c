package provisioner

import (
	"context"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// errNoSigners says that the signers are not this provisioner's to change.
var errNoSigners = errors.New("the signers of this provisioner are fixed")

// AddSigner makes a signer's tokens good, on every provisioner within a second
// and in this process at once. A signer that was removed is good again, and one
// that is there gets the new name and limits. It returns the signer as it now
// is. The error is [ErrState] if another signer has the name: policies and logs
// tell signers apart by it.
func (p *Provisioner) AddSigner(ctx context.Context, n NewSigner, c Cause) (*SignerInfo, error) {
	if p.cfg.Signers == nil {
		return nil, fmt.Errorf("add signer: %w", errNoSigners)
	}
	e, err := n.entry()
	if err = wrong(c.Check(), err); err != nil {
		return nil, fmt.Errorf("add signer: %w", err)
	}
	e.By, e.Why, e.At = c.By, c.Why, p.now()
	told := events.Event{Type: events.SignerAdded, Time: p.moment(), Signer: e.ID, By: c.By, Why: c.Why}
	before, err := p.cfg.Signers.put(ctx, e)
	if err == nil && before != nil {
		err = p.EndEntry(ctx, trust.RemovedSigner, before.Entry, before.Name, c)
	}
	if err != nil {
		return nil, fmt.Errorf("add signer %q: %w", e.Name, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "signer added", "signer", e.ID, "name", e.Name, "by", c.By, "why", c.Why)
	for _, i := range p.cfg.Signers.List() {
		if i.ID == e.ID {
			return &i, nil
		}
	}
	return nil, fmt.Errorf("add signer %q: written and not found", e.Name)
}

// RemoveSigner makes the tokens of a signer worthless, on every provisioner
// within a second and in this process at once, also where provisioner.yaml has
// it, and also if this provisioner has never heard of it. Nodes that enrolled
// with its tokens stay. It returns how many signers are left.
//
// The last one can be removed, too: a stolen key must not go on working for
// want of another one. Then nobody enrolls until a signer is added; renewals
// and the fleet go on.
func (p *Provisioner) RemoveSigner(ctx context.Context, id jwt.SignerID, c Cause) (left int, err error) {
	if p.cfg.Signers == nil {
		return 0, fmt.Errorf("remove signer: %w", errNoSigners)
	}
	if err := wrong(c.Check(), CheckSignerID(id)); err != nil {
		return 0, fmt.Errorf("remove signer: %w", err)
	}
	// With its entry, the signer of all configuration files: this provisioner's may not have it.
	entries, name := []string{string(id)}, ""
	for _, i := range p.cfg.Signers.List() {
		if i.ID != id {
			continue
		}
		if i.Removed {
			return p.cfg.Signers.trusted(), nil
		}
		name = i.Name
	}
	if e, _ := p.logs.Signers.Get(string(id)); e.Value != nil {
		entries = append(entries, e.Value.Entry)
	}
	told := events.Event{Type: events.SignerRemoved, Time: p.moment(), Signer: id, By: c.By, Why: c.Why}
	for _, entry := range entries {
		if err := p.EndEntry(ctx, trust.RemovedSigner, entry, name, c); err != nil {
			return 0, fmt.Errorf("remove signer %s: %w", id, err)
		}
	}
	p.cfg.Emit(told)
	left = p.cfg.Signers.trusted()
	p.cfg.Log.InfoContext(ctx, "signer removed", "signer", id, "name", name, "by", c.By, "why", c.Why, "left", left)
	if left == 0 {
		p.cfg.Log.WarnContext(ctx, "no signer is left: no node enrolls until one is added")
	}
	return left, nil
}

// EndEntry writes that an entry about a signer or an operator does not count any more. Writing it
// again is harmless.
func (p *Provisioner) EndEntry(ctx context.Context, kind trust.RevocationKind, entry, name string, c Cause) error {
	err := p.revocations.Put(ctx, &trust.Revocation{
		Schema: trust.RevocationSchema,
		ID:     wire.NewID(),
		Kind:   kind,
		At:     p.now(),
		By:     c.By,
		Why:    c.Why,
		Entry:  entry,
		Name:   name,
	}, 0)
	if errors.Is(err, ErrConflict) { // it was ended before
		return nil
	}
	return err
}

// ListSigners returns every signer that this process knows, by name, removed
// ones too. The error wraps [ErrRevocationsUnknown] if the list may be old.
func (p *Provisioner) ListSigners(context.Context) ([]SignerInfo, error) {
	if p.cfg.Signers == nil {
		return nil, fmt.Errorf("list signers: %w", errNoSigners)
	}
	if err := p.Fresh(); err != nil {
		return nil, fmt.Errorf("list signers: %w", err)
	}
	return p.cfg.Signers.List(), nil
}
