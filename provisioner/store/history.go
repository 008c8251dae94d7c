package store

import (
	"context"
	"fmt"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
)

// Revisions calls each for every revision that is kept of the record of id, or
// of all records if id is empty, in the order in which they were written. It
// stops at the first error of each and returns it. Records that are written
// meanwhile may or may not be among them. If it returns nil, none was left out that was
// there before.
func (s *Store) Revisions(ctx context.Context, id wire.Identity, each func(*provisioner.Record, trust.Revision) error) error {
	filter := subjectNode + "*"
	if id != "" {
		filter = subjectNode + id.SubjectToken()
	}
	info, err := s.info(ctx, s.nodes, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	if len(info.State.Subjects) == 0 {
		// Whatever was written has a subject that the filter covers, and its newest
		// message stays.
		if last := info.State.LastSeq; id == "" && last > 0 {
			return fmt.Errorf("history: %s ends at sequence %d, has %d messages and names no subject of theirs: ask again", streamNodes, last, info.State.Msgs)
		}
		return nil
	}
	end := info.State.LastSeq
	if id != "" {
		if end, err = endOf(ctx, s, s.nodes, filter); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	}
	return s.scanThrough(ctx, streamNodes, end, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}}, func(m message) error {
		r, err := decodeRecord(m)
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		return each(r, trust.Revision(m.sequence))
	})
}
