package store

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// durableStreams are the streams that a backup has, in the order in which they are read. The other streams are reports.
//
// The order makes a backup consistent although provisioners write while it is read:
//
//   - Records first. What a record rests on was on disk before it, so it is in the streams read later: the claim of
//     its token's use, the authority, the revocations.
//   - Claims after records. A claim without its record costs a node nothing. A record without its claim would give a
//     use back.
//   - Entries after claims: installation, signers, CRLs. A signer removed after the records were read is removed in
//     them.
//   - Revocations last: what they revoke stays revoked whatever an older record says.
//
// What is written after a stream was read is in the journal only.
var durableStreams = []string{streamNodes, streamClaims, streamEntries, streamRevocations}

// A Backup reads what a backup needs.
type Backup struct{ *client }

// Export calls each for every message of a backup, in the order of the streams, while provisioners write. It stops at
// the first error of each.
//
// Of each stream it reads what was there at one instant, when it reached the end. The newest record of every identity
// at that instant is included: a message is dropped only after [History] newer ones of its subject, which are still
// ahead.
func (s *Backup) Export(ctx context.Context, each func(stream string, sequence uint64, subject string, data []byte) error) error {
	for _, name := range durableStreams {
		// A scan that ends early would free revoked names. Wait for all that the leader has, since another replica may
		// lag by milliseconds.
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

// Pending returns how many messages an export would read now.
func (s *Backup) Pending(ctx context.Context) (uint64, error) {
	return s.sumMarks(ctx, func(m Mark) uint64 { return m.Messages })
}

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
