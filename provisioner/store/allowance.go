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
	m, err := s.nextEntry(ctx, subjectAllowance+"*", after)
	if err != nil {
		return nil, 0, fmt.Errorf("read allow-list: %w", err)
	}
	if m.sequence == 0 {
		return nil, 0, nil
	}
	a, err := decodeAllowance(m)
	return a, provisioner.Sequence(m.sequence), err
}

// Allowances implements [provisioner.AllowanceStore].
func (s *Store) Allowances(ctx context.Context, after provisioner.Sequence, each func(*provisioner.Allowance, provisioner.Sequence, error) error) error {
	return s.entriesAfter(ctx, subjectAllowance+"*", after, func(m message) error {
		a, unread := decodeAllowance(m)
		return each(a, provisioner.Sequence(m.sequence), unread)
	})
}

// decodeAllowance returns the entry of the allow-list that a message is. One that cannot be
// read is removed, with an error that wraps [provisioner.ErrUnread].
func decodeAllowance(m message) (*provisioner.Allowance, error) {
	var a provisioner.Allowance
	err := decodeEntry(m, &a, func() string { return subjectAllowance + provisioner.AllowanceID(a.Pattern) })
	if err != nil {
		return &provisioner.Allowance{ID: strings.TrimPrefix(m.subject, subjectAllowance), Removed: true}, fmt.Errorf("read allow-list: %w", err)
	}
	return &a, nil
}
