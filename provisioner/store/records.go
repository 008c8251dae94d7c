package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// Record implements [provisioner.Store].
func (s *Store) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	if doubt := s.guard.doubt.Load(); doubt != nil { // the name may look new
		return nil, 0, fmt.Errorf("read record of %q: %w", id, *doubt)
	}
	r, revision, err := getLast[provisioner.Record](ctx, s.client, streamNodes, subjectNode+id.SubjectToken())
	if r != nil && r.Identity != id {
		err = fmt.Errorf("read record of %q: %w: its identity is %q", id, trust.ErrRecord, r.Identity)
	}
	if err != nil {
		return nil, 0, err
	}
	return r, revision, nil
}

// Put implements [provisioner.Store]. Revoked and retired records may use the reserved space.
func (s *Store) Put(ctx context.Context, r *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	subject := subjectNode + r.Identity.SubjectToken()
	b, err := wire.EncodeJSON(r)
	if err == nil && r.State != provisioner.StateRevoked && r.State != provisioner.StateRetired {
		err = s.useRoom(subject, b)
	}
	var revision uint64
	last := s.guard.nodes.Load()
	if err == nil {
		revision, err = s.batch(ctx, s.recordWriter, subject, b, uint64(after))
	}
	if err == nil {
		err = s.guard.after(streamNodes, revision, last)
	}
	if after == 0 && errors.Is(err, trust.ErrConflict) {
		s.losses.add(subject, func(ctx context.Context) error { return s.checkReadable(ctx, r.Identity) })
	}
	if err != nil {
		return 0, fmt.Errorf("write record of %q: %w", r.Identity, err)
	}
	if q := s.own.Load(); q != nil {
		q.put(r, revision)
	}
	return trust.Revision(revision), nil
}

// checkReadable returns [ErrDamaged], wrapped, if the stream counts a record that cannot be read. Its name reads as
// new, but no write to it succeeds.
func (s *Store) checkReadable(ctx context.Context, id wire.Identity) error {
	subject := subjectNode + id.SubjectToken()
	info, err := s.info(ctx, streamNodes, jetstream.WithSubjectFilter(subject))
	if err != nil || info.State.Subjects[subject] == 0 {
		return err
	}
	if r, _, err := getLast[provisioner.Record](ctx, s.client, streamNodes, subject); r != nil || err != nil {
		return err
	}
	return fmt.Errorf("%w: the record of %q cannot be read", ErrDamaged, id)
}

// Records implements [provisioner.TokenNotes].
func (s *Store) Records(ctx context.Context, each func(*provisioner.Record, trust.Revision) error) error {
	// This reads to the stream's end, since the last message is the newest of its subject.
	return s.read(ctx, "", lastPerSubject(subjectNode+"*"), each)
}

// Revisions calls each for every stored revision of the record of id (empty: of all records), oldest first, up to the
// first error of each.
func (s *Store) Revisions(ctx context.Context, id wire.Identity,
	each func(*provisioner.Record, trust.Revision) error,
) error {
	subject, filter := "", subjectNode+"*"
	if id != "" {
		subject = subjectNode + id.SubjectToken()
		filter = subject
	}
	return s.read(ctx, subject, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}}, each)
}

func (s *Store) read(ctx context.Context, subject string, cfg jetstream.OrderedConsumerConfig,
	each func(*provisioner.Record, trust.Revision) error,
) error {
	end, err := s.leaderEnd(ctx, streamNodes, subject)
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
func (s *Store) History(ctx context.Context, id wire.Identity) ([]provisioner.Revised, bool, error) {
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
