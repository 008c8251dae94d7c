package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
)

// A Binding is an authority that a store was bound to.
type Binding struct {
	CAFingerprint string    `json:"ca"` // hex SHA-256 of the root certificate
	Until         time.Time `json:"until"`
}

// bind reads the installation from the store or, in a new store, writes it. A
// store that is bound to a former authority is bound to this one. Either write
// is made under the condition that nobody wrote before, so that of two
// provisioners that open the store at once the second reads what the first
// wrote: repeating it is harmless, and a crash leaves the one binding or the
// other.
func (s *Store) bind(ctx context.Context, fingerprint string, former []string, now time.Time) error {
	for range 3 {
		var found Installation
		sequence, err := s.last(ctx, s.entries, subjectInstallation, &found)
		next := found
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			next = Installation{ID: wire.NewID(), CreatedAt: now}
		case err != nil:
			return fmt.Errorf("read installation: %w", err)
		case found.CAFingerprint == fingerprint:
			s.installation = found
			return nil
		case !slices.Contains(former, found.CAFingerprint):
			return found.refuse(fingerprint)
		default:
			next.Former = append(slices.Clone(found.Former), Binding{found.CAFingerprint, now})
		}
		next.CAFingerprint = fingerprint
		if _, err = s.putAnyway(ctx, subjectInstallation, next, sequence); err != nil && !errors.Is(err, provisioner.ErrConflict) {
			return fmt.Errorf("write installation: %w", err)
		}
	}
	return errors.New("installation: written and not found")
}

// present returns [ErrLost] if no installation is in the store. Which one it is
// is for bind.
func present(ctx context.Context, js jetstream.JetStream, id string) error {
	_, err := lastEntry(ctx, js, subjectInstallation)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("%w: that of installation %s, which revocations.journal is of: restore a backup; without one, all tokens have their uses again and nothing is revoked once the journal is moved away", ErrLost, id)
	}
	if err != nil {
		return fmt.Errorf("read installation: %w", err)
	}
	return nil
}

// refuse says why an authority does not get this installation's store.
func (i Installation) refuse(fingerprint string) error {
	if slices.ContainsFunc(i.Former, func(b Binding) bool { return b.CAFingerprint == fingerprint }) {
		return fmt.Errorf("%w: its CA was rolled over to the certificate %s, and ours is the one before, %s: "+
			"use the `ca:` of the provisioner that rolled it over", ErrInstallation, i.CAFingerprint, fingerprint)
	}
	return fmt.Errorf("%w: it is bound to the CA certificate %s, ours is %s: use the data directory that belongs to this CA, "+
		"or list the CA before it in ca.previous", ErrInstallation, i.CAFingerprint, fingerprint)
}
