package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"muster/jwt"
	"muster/provisioner"
)

// Entries about limited tokens after a restore that has lost uses of them.
const (
	subjectFreeze = "muster.entry.freeze"
	subjectThaw   = "muster.entry.thaw."
)

// Freeze implements [provisioner.FreezeStore].
func (s *Store) Freeze(ctx context.Context) (*provisioner.Freeze, error) {
	var f provisioner.Freeze
	_, err := s.last(ctx, s.entries, subjectFreeze, &f)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read freeze: %w", err)
	}
	return &f, nil
}

// Thaw implements [provisioner.FreezeStore].
func (s *Store) Thaw(ctx context.Context, tid jwt.TokenID) (*provisioner.Thaw, error) {
	var t provisioner.Thaw
	_, err := s.last(ctx, s.entries, subjectThaw+string(tid), &t)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read thaw of token %s: %w", tid, err)
	}
	return &t, nil
}

// PutThaw implements [provisioner.FreezeStore].
func (s *Store) PutThaw(ctx context.Context, t *provisioner.Thaw) error {
	if _, err := s.append(ctx, subjectThaw+string(t.Token), t, t.Freeze+string(t.Token)); err != nil {
		return fmt.Errorf("write thaw of token %s: %w", t.Token, err)
	}
	return nil
}
