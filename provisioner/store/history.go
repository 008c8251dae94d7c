package store

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// Records implements [provisioner.TokenNotes].
func (s *RecordStore) Records(ctx context.Context, each func(*provisioner.Record, trust.Revision) error) error {
	// This reads to the stream's end, since the last message is the newest of its subject.
	return s.read(ctx, "", lastPerSubject(subjectNode+"*"), each)
}

// Revisions calls each for every stored revision of the record of id (empty: of all records), oldest first, up to the
// first error of each.
func (s *RecordStore) Revisions(ctx context.Context, id wire.Identity,
	each func(*provisioner.Record, trust.Revision) error,
) error {
	subject, filter := "", subjectNode+"*"
	if id != "" {
		subject = subjectNode + id.SubjectToken()
		filter = subject
	}
	return s.read(ctx, subject, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}}, each)
}

func (s *RecordStore) read(ctx context.Context, subject string, cfg jetstream.OrderedConsumerConfig,
	each func(*provisioner.Record, trust.Revision) error,
) error {
	end, err := leaderEnd(ctx, s.client, streamNodes, subject)
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	if end == 0 {
		return nil
	}
	return s.scan(ctx, streamNodes, end, cfg, func(m message) error {
		r, err := decodeRecord(m)
		if err != nil {
			return err
		}
		return each(r, trust.Revision(m.sequence))
	})
}

// History implements [provisioner.TokenNotes].
func (s *RecordStore) History(ctx context.Context, id wire.Identity) ([]provisioner.Revised, bool, error) {
	var history []provisioner.Revised
	err := s.Revisions(ctx, id, func(r *provisioner.Record, at trust.Revision) error {
		history = append(history, provisioner.Revised{Record: r, Revision: at})
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("history of %q: %w", id, err)
	}
	// With History-1 or more revisions, older ones may have been dropped.
	return history, len(history) < History-1, nil
}
