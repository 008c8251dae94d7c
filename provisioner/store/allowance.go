package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	unread := errors.Is(err, provisioner.ErrRecord)
	if err == nil {
		if err = a.Check(); err == nil && a.Pattern != p {
			err = fmt.Errorf("it is about %q", a.Pattern)
		}
		unread = err != nil
	}
	if unread {
		err = fmt.Errorf("%w: %w", provisioner.ErrUnread, err)
	}
	if err != nil {
		return nil, provisioner.Revision(revision), fmt.Errorf("read allow-list entry %q: %w", p, err)
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
	m, err := s.nextEntry(ctx, subjectAllowance+"*", after, &a, func() string { return subjectAllowance + provisioner.AllowanceID(a.Pattern) })
	if err != nil {
		err = fmt.Errorf("read allow-list: %w", err)
	}
	if m == nil {
		return nil, 0, err
	}
	if err != nil {
		a = provisioner.Allowance{ID: strings.TrimPrefix(m.Subject, subjectAllowance), Removed: true}
	}
	return &a, provisioner.Sequence(m.Sequence), err
}
