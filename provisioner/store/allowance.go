package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
)

// subjectAllowance is where the allow-list's entries are, among the entries.
const subjectAllowance = "muster.entry.allow." // + provisioner.AllowanceID

// Allowance implements [provisioner.AllowanceStore].
func (s *Store) Allowance(ctx context.Context, p wire.Pattern) (*provisioner.Allowance, provisioner.Revision, error) {
	var a provisioner.Allowance
	revision, err := s.last(ctx, s.entries, subjectAllowance+provisioner.AllowanceID(p), &a)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err == nil {
		err = a.Check()
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read allow-list entry %q: %w", p, err)
	}
	return &a, provisioner.Revision(revision), nil
}

// PutAllowance implements [provisioner.AllowanceStore].
func (s *Store) PutAllowance(ctx context.Context, a *provisioner.Allowance, after provisioner.Revision) error {
	if err := a.Check(); err != nil {
		return err
	}
	if _, err := s.put(ctx, subjectAllowance+provisioner.AllowanceID(a.Pattern), a, uint64(after)); err != nil {
		return fmt.Errorf("write allow-list entry %q: %w", a.Pattern, err)
	}
	return nil
}

// NextAllowance implements [provisioner.AllowanceStore].
func (s *Store) NextAllowance(ctx context.Context, after provisioner.Sequence) (*provisioner.Allowance, provisioner.Sequence, error) {
	var a provisioner.Allowance
	m, err := s.next(ctx, s.entries, subjectAllowance+"*", uint64(after), &a)
	if err == nil && m != nil {
		if err = a.Check(); err == nil && m.Subject != subjectAllowance+provisioner.AllowanceID(a.Pattern) {
			err = fmt.Errorf("allow-list entry %q on %s", a.Pattern, m.Subject)
		}
		if err != nil {
			err = fmt.Errorf("sequence %d: %w", m.Sequence, err)
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read allow-list: %w", err)
	}
	if m == nil {
		return nil, 0, nil
	}
	return &a, provisioner.Sequence(m.Sequence), nil
}
