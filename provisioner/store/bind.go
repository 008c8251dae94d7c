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

// bind reads the installation from the store or, in a new store, writes it. A
// store that is bound to a former authority is bound to this one. Either write
// is made under the condition that nobody wrote before, so that of two
// provisioners that open the store at once the second reads what the first
// wrote: repeating it is harmless, and a crash leaves the one binding or the
// other.
func (s *Store) bind(ctx context.Context, fingerprint string, former []string, now time.Time) error {
	for range 3 {
		found, revision, err := getLast[Installation](ctx, s.client, streamEntries, subjectInstallation)
		next := Installation{ID: wire.NewID(), CreatedAt: now}
		switch {
		case err != nil:
			return fmt.Errorf("read installation: %w", err)
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
		if _, err = s.putReserved(ctx, subjectInstallation, next, uint64(revision)); err != nil && !errors.Is(err, trust.ErrConflict) {
			return fmt.Errorf("write installation: %w", err)
		}
	}
	return errors.New("installation: written and not found")
}

// whole returns [ErrLost] if a part of a store is gone without the rest: no installation
// is in it although id, of the one that is known to be here, is not empty, or although there
// are records; or a stream of records is not there that an installation has. Made
// anew it would be empty: every name would be free, every use of a token there again, or
// nobody revoked. Which installation it is is for bind. It returns what the streams of records have.
//
// A new store has its streams before its installation, so one that was made by half has
// neither installation nor records.
func (c *client) checkComplete(ctx context.Context, id string) (found *Watermark, err error) {
	found, err = c.marks(ctx, 0)
	if err != nil {
		return nil, err
	}
	// After the streams: another provisioner may be making the store.
	there, err := newestEntry[Installation](ctx, c.js, subjectInstallation)
	if err != nil {
		return nil, err
	}
	installed := there != nil
	if installed && there.Restoring != "" {
		return nil, there.errHalfRestored()
	}
	if !installed && id != "" {
		return nil, fmt.Errorf("%w: that of installation %s, which revocations.journal is of: restore a backup; without one, all tokens have their uses again and nothing is revoked once the journal is moved away", ErrLost, id)
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

// lost says what is to be done about a stream of records that is gone.
func errStreamLost(stream string) error {
	return fmt.Errorf("%w: stream %s is not there, and others of the store are: it was deleted, or its disk is another one: "+
		"give the servers the disks back that have it, or restore a backup into an empty store", ErrLost, stream)
}

// halfRestored is the error of a store whose restore is not over.
func (i Installation) errHalfRestored() error {
	return fmt.Errorf("%w: that of backup %s, begun at %s: restore once more", ErrHalfRestored, i.Restoring, i.CreatedAt.Format(time.RFC3339))
}

// refuse says why an authority does not get this installation's store.
func (i Installation) errWrongAuthority(fingerprint string) error {
	return fmt.Errorf("%w: it is bound to the CA certificate %s, ours is %s: use the data directory that belongs to this CA, "+
		"list it in ca.previous if ours was rolled over from it, or use the `ca:` of the provisioner that rolled ours over", ErrInstallation, i.CAFingerprint, fingerprint)
}
