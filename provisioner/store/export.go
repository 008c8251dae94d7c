package store

import (
	"context"
	"fmt"
)

// durableStreams are the streams of a backup, in the order in which it reads them while provisioners write:
//
//   - Records first: the claims and entries that they depend on were stored before them, and are read after them.
//   - Claims: a claim without its record costs a node nothing; a record without its claim would free a use.
//   - Entries: they show signers that were removed after the records were read.
//   - Revocations last: they hold even if an older record says otherwise.
var durableStreams = []string{streamNodes, streamClaims, streamEntries, streamRevocations}

// A Backup reads the streams for a backup.
type Backup struct{ *client }

// Export calls each for every message of a backup, up to the first error of each. Provisioners may write meanwhile. No
// identity is missed: a message is dropped only after [History] newer ones of its subject, which Export still reads.
func (s *Backup) Export(ctx context.Context,
	each func(stream string, sequence uint64, subject string, data []byte) error,
) error {
	for _, name := range durableStreams {
		// A backup that lacks a message would free a name or a use.
		if err := s.scanAll(ctx, name, func(m message) error {
			return each(name, m.sequence, m.subject, m.data)
		}); err != nil {
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
		return 0, fmt.Errorf("read the state of the streams: %w", err)
	}
	for _, m := range found.Streams {
		n += of(m)
	}
	return n, nil
}
