package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
	"muster/provisioner"
)

// eventsAhead is how many events of each stream are read ahead of whoever takes
// them: at 500 bytes each, 64 KiB of memory for a slow reader, and no more.
const eventsAhead = 128

// found is an event of one of the streams, or that there is none for now.
type found struct {
	event   *provisioner.StoredEvent // nil if it was none, or is not wanted
	stored  time.Time
	place   uint64
	pending uint64 // behind it
}

// Events implements [provisioner.EventLog]. The two streams are merged by the
// time at which the broker stored each event.
func (s *Store) Events(ctx context.Context, q provisioner.EventQuery, each func(*provisioner.StoredEvent) error) error {
	g, running := errgroup.WithContext(ctx)
	events, attempts := make(chan found), make(chan found)
	g.Go(func() error { return s.readEvents(running, streamEvents, q, events) })
	g.Go(func() error { return s.readEvents(running, streamAttempts, q, attempts) })
	g.Go(func() error {
		m := merger{each: each, sources: [2]source{{in: events, behind: true}, {in: attempts, behind: true}}}
		if q.After != nil {
			m.place = *q.After
		}
		return m.run(running)
	})
	err := g.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// readEvents sends what a stream has, and will have, to out, and at first where
// it stands. With q.Once it closes out at the end.
func (s *Store) readEvents(ctx context.Context, stream string, q provisioner.EventQuery, out chan<- found) error {
	fail := func(err error) error { return fmt.Errorf("read %s: %w", stream, err) }
	send := func(f found) error {
		select {
		case out <- f:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	info, err := ask(ctx, s, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		st, err := s.js.Stream(ctx, stream)
		if err != nil {
			return nil, err
		}
		return st.CachedInfo(), nil
	})
	if err != nil {
		return fail(err)
	}
	l, err := s.look(ctx, stream, eventConsumer(stream, q, info.State.LastSeq), jetstream.PullMaxMessages(eventsAhead), jetstream.PullThresholdMessages(eventsAhead/2))
	if err != nil {
		return fail(err)
	}
	defer l.close(ctx)
	begin := info.State.LastSeq
	if q.After != nil {
		begin = after(stream, *q.After)
	} else if l.pending > 0 {
		begin = 0 // the first event says where it is
	}
	if err := send(found{place: begin, pending: l.pending}); err != nil {
		return err
	}
	for !q.Once || l.pending > 0 {
		m, meta, err := l.next(ctx)
		if err != nil {
			return fail(err)
		}
		f := found{} // what was to come has had to make room
		if m != nil {
			f = found{event: storedEvent(m.Subject(), m.Data(), meta.Timestamp), stored: meta.Timestamp, place: meta.Sequence.Stream, pending: meta.NumPending}
		}
		if f.event != nil && !q.Wants(f.event) {
			f.event = nil
		}
		if err := send(f); err != nil {
			return err
		}
	}
	close(out)
	return nil
}

// after is the part of a place that is about the stream.
func after(stream string, p provisioner.Place) uint64 {
	if stream == streamAttempts {
		return p.Attempts
	}
	return p.Events
}

// eventConsumer says where in a stream q begins, and what of it the broker need
// not send.
func eventConsumer(stream string, q provisioner.EventQuery, last uint64) jetstream.OrderedConsumerConfig {
	c := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: last + 1}
	switch {
	case q.After != nil:
		// Of a log that was lost since, all is new.
		if place := after(stream, *q.After); place <= last {
			c.OptStartSeq = place + 1
		} else {
			c.OptStartSeq = 1
		}
	case !q.Since.IsZero():
		c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &q.Since
	}
	if q.Node == "" {
		return c
	}
	node := q.Node.SubjectToken()
	if stream == streamAttempts {
		c.FilterSubjects = []string{subjectAttempt + "*." + node}
		return c
	}
	c.FilterSubjects = []string{subjectEvent + "*.*." + node, strings.Replace(wire.AllNodeEvents, "*", node, 1)}
	return c
}

// storedEvent decodes a message of the streams, or returns nil if it is no
// event. recorded is when the broker stored it. What a node publishes of itself is taken for no more than that: its
// type and its subject are those of the subject that the broker let it publish
// on, and what is not known of a lifecycle event is left out.
func storedEvent(subject string, data []byte, recorded time.Time) *provisioner.StoredEvent {
	var e provisioner.StoredEvent
	if json.Unmarshal(data, &e) != nil {
		return nil
	}
	if strings.HasPrefix(subject, subjectEvent) || strings.HasPrefix(subject, subjectAttempt) {
		e.RecordedTime = recorded.UTC()
		return &e
	}
	parts := strings.Split(subject, ".")
	if len(parts) < 2 {
		return nil
	}
	id, err := wire.ParseSubjectToken(parts[len(parts)-2])
	if err != nil {
		return nil
	}
	clean, err := provisioner.CleanLifecycle(id, parts[len(parts)-1], &e)
	if err != nil {
		return nil
	}
	clean.RecordedTime = recorded.UTC()
	return clean
}

// source is one stream of a merge.
type source struct {
	in     <-chan found
	head   *found
	behind bool // more is there and on its way
	ended  bool
}

// merger hands on what two streams have.
type merger struct {
	each    func(*provisioner.StoredEvent) error
	sources [2]source // events, attempts
	place   provisioner.Place
}

// errEnded ends what reads a stream, or merges both, and has all that it wants.
var errEnded = errors.New("ended")

// run merges until both streams have ended, or ctx is done.
func (m *merger) run(ctx context.Context) error {
	for {
		if err := m.fill(ctx); err != nil {
			if errors.Is(err, errEnded) {
				return nil
			}
			return err
		}
		if err := m.emit(); err != nil {
			return err
		}
	}
}

// fill waits until it is known which event is next: each stream has shown one, or
// has none for now.
func (m *merger) fill(ctx context.Context) error {
	for {
		a, b := &m.sources[0], &m.sources[1]
		if a.ended && b.ended && a.head == nil && b.head == nil {
			return errEnded
		}
		waits := func(s *source) bool { return s.head == nil && s.behind && !s.ended }
		if (a.head != nil || b.head != nil) && !waits(a) && !waits(b) {
			return nil
		}
		select {
		case f, ok := <-a.open():
			a.take(f, ok)
		case f, ok := <-b.open():
			b.take(f, ok)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open returns where the stream's next message comes from; nil, which never has
// one, while there is one already or if there is no more.
func (s *source) open() <-chan found {
	if s.head != nil || s.ended {
		return nil
	}
	return s.in
}

// take takes in what came.
func (s *source) take(f found, ok bool) {
	if !ok {
		s.ended, s.behind = true, false
		return
	}
	s.head, s.behind = &f, f.pending > 0
}

// emit hands on the older head.
func (m *merger) emit() error {
	i := 0
	if a, b := m.sources[0].head, m.sources[1].head; a == nil || b != nil && b.stored.Before(a.stored) {
		i = 1
	}
	f, other := m.sources[i].head, m.sources[1-i].head
	m.sources[i].head = nil
	places := [2]*uint64{&m.place.Events, &m.place.Attempts}
	if *places[i] = max(*places[i], f.place); other != nil && other.place > 0 {
		// Nothing before it is wanted: whoever goes on from here need not look.
		*places[1-i] = max(*places[1-i], other.place-1)
	}
	if f.event == nil {
		return nil
	}
	f.event.Place = m.place
	return m.each(f.event)
}
