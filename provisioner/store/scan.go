package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
)

// A message is one of a stream, as a scan meets it.
type message struct {
	subject  string
	data     []byte
	sequence uint64
	at       time.Time // by the broker's clock
}

// scan calls each for every message of the stream that the filter covers, in the
// order in which they were written, or only for the last one of each subject. It
// stops at the first error of each. Messages that are written meanwhile may or
// may not be among them.
func (s *Store) scan(ctx context.Context, stream, filter string, which jetstream.DeliverPolicy, each func(message) error) error {
	return s.scanWith(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}, DeliverPolicy: which}, each)
}

// scanWith is scan for what a consumer of that configuration gets.
func (s *Store) scanWith(ctx context.Context, stream string, cfg jetstream.OrderedConsumerConfig, each func(message) error) error {
	l, err := s.look(ctx, stream, cfg)
	if err != nil {
		return fmt.Errorf("scan of %s: %w", stream, err)
	}
	defer l.close(ctx)
	return l.each(ctx, each)
}

// each calls each for every message that is ahead of the look; see scan.
func (l *look) each(ctx context.Context, each func(message) error) error {
	for l.pending > 0 { // of an empty set nothing would ever be delivered
		m, meta, err := l.next(ctx)
		if err != nil {
			return fmt.Errorf("scan of %s: %w", l.stream, err)
		}
		if m == nil {
			return nil
		}
		if err := each(message{m.Subject(), m.Data(), meta.Sequence.Stream, meta.Timestamp}); err != nil {
			return err
		}
	}
	return nil
}

// drop takes a consumer away that is not needed any more. The broker would do it
// by itself after a while, but it has room for so many only, and who asks often
// must not take them from those who need one. What fails is left to it.
func (s *Store) drop(ctx context.Context, stream string, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	_ = s.js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name)
}

// dropTimeout bounds the wait for a consumer to be gone; chosen, it takes less
// than a millisecond.
const dropTimeout = time.Second

// decodeRecord decodes a record that was found on its subject.
func decodeRecord(m message) (*provisioner.Record, error) {
	var r provisioner.Record
	if err := errors.Join(json.Unmarshal(m.data, &r), r.Check()); err != nil {
		return nil, fmt.Errorf("sequence %d: %w", m.sequence, err)
	}
	if m.subject != subjectNode+r.Identity.SubjectToken() {
		return nil, fmt.Errorf("sequence %d: record of %q on %s", m.sequence, r.Identity, m.subject)
	}
	return &r, nil
}

// Records implements [provisioner.TokenNotes].
func (s *Store) Records(ctx context.Context, each func(*provisioner.Record, provisioner.Revision) error) error {
	return s.scan(ctx, streamNodes, subjectNode+"*", jetstream.DeliverLastPerSubjectPolicy, func(m message) error {
		r, err := decodeRecord(m)
		if err != nil {
			return err
		}
		return each(r, provisioner.Revision(m.sequence))
	})
}

// History implements [provisioner.TokenNotes].
func (s *Store) History(ctx context.Context, id wire.Identity) ([]provisioner.Revised, bool, error) {
	var history []provisioner.Revised
	err := s.scan(ctx, streamNodes, subjectNode+id.SubjectToken(), jetstream.DeliverAllPolicy, func(m message) error {
		r, err := decodeRecord(m)
		if err == nil {
			history = append(history, provisioner.Revised{Record: r, Revision: provisioner.Revision(m.sequence)})
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	// A full history may have lost its beginning. One revision that came while
	// we read may have pushed out one that we have not seen.
	return history, len(history) < History-1, nil
}
