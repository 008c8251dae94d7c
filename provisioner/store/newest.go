package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner"
)

// Newest calls each for the newest record of every identity, in the order in
// which they were written. It stops at the first error of each and returns it.
// Of records that are written meanwhile, either revision may be among them, or
// both. If it returns nil, no identity was left out.
func (s *Store) Newest(ctx context.Context, each func(*provisioner.Record) error) error {
	info, err := s.info(ctx, s.nodes)
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	last := uint64(0)
	err = s.scan(ctx, streamNodes, subjectNode+"*", jetstream.DeliverLastPerSubjectPolicy, func(m message) error {
		r, err := decodeRecord(m)
		if err != nil {
			return fmt.Errorf("records: %w", err)
		}
		if err := each(r); err != nil {
			return err
		}
		last = m.sequence
		// What was the last message at the start is the newest of its subject,
		// so it comes, unless it was followed by another that comes in its
		// place: nobody waits here for ever.
		if m.sequence >= info.State.LastSeq {
			return errEnded
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnded):
		return nil
	case err != nil:
		return err
	}
	// In a cluster, who was read from may be behind who said where the stream ends.
	return fmt.Errorf("records: read to sequence %d of %d: try again", last, info.State.LastSeq)
}
