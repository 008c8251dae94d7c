package store

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// kept are the streams that a backup has, in the order in which they are read.
// The rest are reports.
//
// They are read one after the other while provisioners write, so each is of a
// later instant than the one before it. The order is what makes that harmless:
// what comes later may only know more.
//
//   - Records come first. Whatever a record rests on was on disk before it: the
//     claim of its token's use, the authority that the store is bound to, the
//     revocations that it has followed. All that is in what is read after it.
//   - Claims come after: one without its record is a use that is claimed and not
//     enrolled, which costs its node nothing. A record without its claim would
//     give a use back.
//   - Entries come after: whom an installation is bound to, signers, CRLs. A
//     signer that was removed after the records were read is removed in them.
//   - Revocations come last: what they revoke stays revoked whatever an older
//     record says, and no CRL covers more of them than are there.
//
// Whatever comes after the reading of each is for the journal.
var durableStreams = []string{streamNodes, streamClaims, streamEntries, streamRevocations}

// A Backup reads what a backup needs.
type Backup struct{ *client }

// Export calls each for every message that a backup needs, while others write, in the order that makes it consistent. It
// stops at the first error of each.
//
// Of each stream it reads what was there at one instant, when it came to the
// end: every identity's newest record of that instant is among it, since a
// message that has been passed by can only go when [History] newer ones of its
// subject have come, which are still ahead then.
func (s *Backup) Export(ctx context.Context, each func(stream string, sequence uint64, subject string, data []byte) error) error {
	for _, name := range durableStreams {
		// What its leader has must come: a scan that stopped early would free whoever comes
		// after. In a cluster the one that is read from may be some milliseconds behind, which
		// must not be the end of a long backup.
		end, err := leaderEnd(ctx, s.client, name, "")
		if err == nil {
			err = s.scan(ctx, name, end, jetstream.OrderedConsumerConfig{}, func(m message) error {
				return each(name, m.sequence, m.subject, m.data)
			})
		}
		if err != nil {
			return fmt.Errorf("export: stream %s: %w", name, err)
		}
	}
	return nil
}

// Pending returns how many messages an export would read now, for progress.
func (s *Backup) Pending(ctx context.Context) (uint64, error) {
	return s.sumMarks(ctx, func(m Mark) uint64 { return m.Messages })
}

// sum adds up a number of all streams that are kept.
func (c *client) sumMarks(ctx context.Context, of func(Mark) uint64) (n uint64, err error) {
	found, err := c.marks(ctx, 0)
	if err != nil {
		return 0, fmt.Errorf("numbers of the streams: %w", err)
	}
	for _, m := range found.Streams {
		n += of(m)
	}
	return n, nil
}
