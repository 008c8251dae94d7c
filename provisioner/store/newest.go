package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner"
)

// Newest calls each for the newest record of every identity, in the order in
// which they were written. It stops at the first error of each and returns it.
// Of records that are written meanwhile, either revision may be among them, or
// both.
func (s *Store) Newest(ctx context.Context, each func(*provisioner.Record) error) error {
	info, err := ask(ctx, s, func(ctx context.Context) (*jetstream.StreamInfo, error) { return s.nodes.Info(ctx) })
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	consumer, err := s.ordered(ctx, streamNodes, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subjectNode + "*"}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	})
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	defer s.drop(ctx, streamNodes, consumer)
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("records: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("records: %w", err)
		}
		var r provisioner.Record
		if err := errors.Join(json.Unmarshal(m.Data(), &r), r.Check()); err != nil {
			return fmt.Errorf("records: sequence %d: %w", meta.Sequence.Stream, err)
		}
		if err := each(&r); err != nil {
			return err
		}
		// What was the last message at the start is the newest of its subject,
		// so it comes, unless it was followed by another that comes in its
		// place: nobody waits here for ever.
		if meta.NumPending == 0 || meta.Sequence.Stream >= info.State.LastSeq {
			return nil
		}
	}
}
