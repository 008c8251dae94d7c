package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
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
	fail := func(err error) error { return fmt.Errorf("scan of %s: %w", stream, err) }
	consumer, err := s.ordered(ctx, stream, cfg)
	if err != nil {
		return fail(err)
	}
	return s.each(ctx, stream, consumer, each)
}

// each calls each for every message that the consumer has ahead of it, and drops
// the consumer; see scan.
func (s *Store) each(ctx context.Context, stream string, consumer jetstream.Consumer, each func(message) error) error {
	fail := func(err error) error { return fmt.Errorf("scan of %s: %w", stream, err) }
	defer s.drop(ctx, stream, consumer)
	// Of an empty set nothing would ever be delivered.
	if consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fail(err)
	}
	defer messages.Stop()
	for last := uint64(0); ; {
		m, err := s.nextOf(ctx, stream, consumer, last, messages)
		if err != nil {
			return fail(err)
		}
		if m == nil {
			return nil
		}
		meta, err := m.Metadata()
		if err != nil {
			return fail(err)
		}
		last = meta.Sequence.Consumer
		if err := each(message{m.Subject(), m.Data(), meta.Sequence.Stream, meta.Timestamp}); err != nil {
			return err
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
}

// drop takes a consumer away that is not needed any more. The broker would do it
// by itself after minutes, but it has room for so many only, and who asks often
// must not take them from those who need one. What fails is left to it.
func (s *Store) drop(ctx context.Context, stream string, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	_ = s.js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name)
}

// dropTimeout bounds the wait for a consumer to be gone; chosen, it takes less
// than a millisecond.
const dropTimeout = time.Second

// gone is after what silence it is looked whether what is waited for has been removed
// meanwhile; chosen, a hundred times what a message takes.
const gone = time.Second

// exhausted reports whether nothing is to come of what a consumer had ahead of it: it has
// been removed. last is the consumer's number of the message that came last, 0 for none.
// What does not answer is not exhausted.
func exhausted(ctx context.Context, consumer jetstream.Consumer, last uint64) bool {
	info, err := consumer.Info(ctx)
	// What was sent and has not come is lost, and comes from the next consumer.
	return err == nil && info.NumPending == 0 && (info.Delivered.Consumer == 0 || info.Delivered.Consumer == last)
}

// nextOf returns the next message of a scan, or nil if those that were to come
// have been removed, as only those of the nodes that wait are.
func (s *Store) nextOf(ctx context.Context, stream string, consumer jetstream.Consumer, last uint64, messages jetstream.MessagesContext) (jetstream.Msg, error) {
	if stream != streamWaiting {
		return messages.Next(jetstream.NextContext(ctx))
	}
	for {
		m, err := messages.Next(jetstream.NextMaxWait(gone))
		switch {
		case !errors.Is(err, nats.ErrTimeout):
			return m, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case exhausted(ctx, consumer, last):
			return nil, nil
		}
	}
}

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
