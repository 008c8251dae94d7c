package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// bind reads the installation, or writes it. It binds a store of a former authority to this one. Both writes are
// compare-and-set, so a second provisioner reads what the first wrote, and a crash leaves one binding or the other.
func (s *Store) bind(ctx context.Context, fingerprint string, former []string, now time.Time) error {
	for range 3 {
		found, revision, err := getLast[Installation](ctx, s.client, streamEntries, subjectInstallation)
		next := Installation{ID: wire.NewID(), CreatedAt: now}
		switch {
		case err != nil:
			return err
		case found == nil:
		case found.Restoring != "":
			return found.errHalfRestored()
		case found.CAFingerprint == fingerprint:
			s.installation = *found
			return nil
		case !slices.Contains(former, found.CAFingerprint):
			return found.errWrongAuthority(fingerprint)
		default:
			next = *found
		}
		next.CAFingerprint = fingerprint
		if _, err = s.putReserved(ctx, subjectInstallation, next, revision); err != nil &&
			!errors.Is(err, trust.ErrConflict) {
			return err
		}
	}
	return errors.New("read installation: not found after it was written")
}

// checkComplete returns [ErrDamaged] if the expected installation or a durable stream is missing. A new stream would be
// empty: names free, tokens unspent, nothing revoked.
func (c *client) checkComplete(ctx context.Context, id string) (found *Watermark, err error) {
	found, err = c.marks(ctx, 0)
	if err != nil {
		return nil, err
	}
	// Read this after the streams, since another provisioner may be creating the store.
	current, err := newestEntry[Installation](ctx, c, subjectInstallation)
	if err != nil {
		return nil, err
	}
	installed := current != nil
	if installed && current.Restoring != "" {
		return nil, current.errHalfRestored()
	}
	if !installed && id != "" {
		return nil, adviseLost(fmt.Errorf("%w: it has no installation, but revocations.journal belongs to %s",
			ErrDamaged, id))
	}
	for _, name := range durableStreams {
		switch mark, there := found.Streams[name]; {
		case installed && !there:
			return nil, errStreamLost(name)
		case !installed && name != streamEntries && mark.Messages > 0:
			return nil, errStreamLost(streamEntries)
		}
	}
	return found, nil
}

func errStreamLost(stream string) error {
	return adviseLost(fmt.Errorf("%w: stream %s is missing: it was deleted, or its disk was replaced", ErrDamaged,
		stream))
}

func (i Installation) errHalfRestored() error {
	return fmt.Errorf("%w: restore of backup %s, begun at %s: restore it again", ErrHalfRestored, i.Restoring,
		i.CreatedAt.Format(time.RFC3339))
}

func (i Installation) errWrongAuthority(fingerprint string) error {
	return fmt.Errorf("%w: it is bound to the CA certificate %s, ours is %s: use the data directory of this CA, "+
		"list the store's CA in ca.previous if ours was rolled over from it, or use the `ca:` of the provisioner "+
		"that did that", ErrInstallation, i.CAFingerprint, fingerprint)
}
